/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Links: kept messages, acknowledgements, answers, and what comes again after a restart. */
#include "check.h"
#include <poll.h>
#include <sys/stat.h>

static void send_numbers(partywall_link *link, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        OK(partywall_link_send(link, &i, sizeof i, TIMEOUT_NS, NULL));
    }
}

/* Receives one message of the link, and checks that it is the number `wanted`. */
static partywall_link_message *expect(partywall_link *link, uint32_t wanted) {
    partywall_link_message *message = NULL;
    const void *data = NULL;
    size_t len = 0;
    uint32_t found = 0;
    OK(partywall_link_recv(link, &message, TIMEOUT_NS, NULL));
    OK(partywall_link_message_data(message, &data, &len));
    CHECK(len == sizeof found);
    memcpy(&found, data, len);
    CHECK(found == wanted);
    return message;
}

static partywall_link *connect_link(partywall_link_client *client, const char *address) {
    partywall_link *link = NULL;
    OK(partywall_link_connect(client, address, "bob", "orders", &link, NULL));
    return link;
}

static partywall_link *accept_link(partywall_link_server *server) {
    partywall_link *link = NULL;
    OK(partywall_link_server_accept(server, &link, TIMEOUT_NS, NULL));
    return link;
}

/* Both ends of a link know the link's name and the name of the peer's end. */
static void named(partywall_link *link, const char *peer) {
    char text[16] = {0};
    size_t len = 0;
    STATUS(partywall_link_name(link, text, 5, &len, NULL), PARTYWALL_BUFFER_TOO_SHORT);
    CHECK(len == strlen("orders") && text[0] == 0);
    OK(partywall_link_name(link, text, sizeof text, &len, NULL));
    CHECK(len == strlen("orders") && memcmp(text, "orders", len) == 0);
    OK(partywall_link_peer_name(link, text, sizeof text, &len, NULL));
    CHECK(len == strlen(peer) && memcmp(text, peer, len) == 0);
}

/*
 * A copy of a link configuration has the settings and the group of the original, and is an object
 * of its own.
 */
static void copied(partywall_link_config *config, partywall_link_group *group) {
    partywall_link_config *copy = NULL;
    partywall_link_client *client = NULL;
    partywall_link *link = NULL;
    int64_t timer = -1;
    OK(partywall_link_config_copy(config, &copy, NULL));
    OK(partywall_link_client_new(NULL, "dave", copy, &client, NULL));
    OK(partywall_link_config_free(copy));
    link = connect_link(client, "unix:/nonexistent/link.sock");
    OK(partywall_link_group_poll(group, &(size_t){0}, 0, NULL));
    OK(partywall_link_group_next_timer(group, &timer));
    CHECK(timer >= 0); /* the link is of the group: it will try again */
    OK(partywall_link_free(link));
    OK(partywall_link_client_free(client));
}

/* The events of a link say why the link does not attach. */
static void refused(partywall_link *link, const char *address) {
    partywall_link_event event;
    char text[100] = {0};
    size_t len = 0;
    OK(partywall_link_next_event(link, &event, sizeof event, TIMEOUT_NS, NULL));
    CHECK(event.kind == PARTYWALL_LINK_EVENT_REFUSED);
    CHECK(event.is_resumed == 0 && event.is_farewell == 0);
    CHECK(strstr(event.text, strchr(address, '/')) != NULL);
    STATUS(partywall_link_status_text(link, text, 3, &len, NULL), PARTYWALL_BUFFER_TOO_SHORT);
    OK(partywall_link_status_text(link, text, sizeof text - 1, &len, NULL));
    CHECK(strlen(text) == len && len > 3);
}

/*
 * A server reports why it has refused a client, here because the client asks for another server's
 * name.
 */
static void refusing(const char *address) {
    partywall_link_group *group = NULL;
    partywall_link_config *config = NULL;
    partywall_link_server *server = NULL;
    partywall_link_client *client = NULL;
    partywall_link *link = NULL;
    partywall_link_event event;
    partywall_error *cause = NULL;
    char text[300] = {0};
    size_t len = 9;
    OK(partywall_link_group_new(&group, NULL));
    OK(partywall_link_config_new(&config, NULL));
    OK(partywall_link_config_set_group(config, group, NULL));
    OK(partywall_link_server_bind(address, NULL, "carol", config, &server, NULL));
    OK(partywall_link_server_last_refusal(server, NULL, 0, &len, NULL));
    CHECK(len == 0);
    OK(partywall_link_client_new(NULL, "alice", config, &client, NULL));
    link = connect_link(client, address);
    OK(partywall_link_next_event(link, &event, sizeof event, TIMEOUT_NS, NULL));
    CHECK(event.kind == PARTYWALL_LINK_EVENT_REFUSED);
    OK(partywall_link_server_last_refusal(server, text, sizeof text - 1, &len, NULL));
    CHECK(len > 0 && strlen(text) == len);
    OK(partywall_link_server_take_open_error(server, &cause, NULL));
    CHECK(cause == NULL);
    OK(partywall_link_free(link));
    OK(partywall_link_client_free(client));
    OK(partywall_link_server_free(server));
    OK(partywall_link_config_free(config));
    OK(partywall_link_group_free(group));
}

/*
 * The server stops, and starts again: messages that were not acknowledged come again, and no
 * others.
 */
static void restart(const char *alice, const char *bob, const char *address) {
    partywall_link_client *client = NULL;
    partywall_link_server *server = NULL;
    partywall_link *here = NULL, *there = NULL;
    partywall_link_message *message = NULL;
    const void *data = NULL;
    size_t len = 0;
    uint64_t bytes = 1, position = 0, stream = 0, before = 0;
    uint32_t attempt = 0;
    int32_t status = -1;
    partywall_link_config *config = NULL;
    partywall_link_group *group = NULL;
    /* Both ends are in one group of links, because one thread waits for both. */
    OK(partywall_link_group_new(&group, NULL));
    OK(partywall_link_config_new(&config, NULL));
    OK(partywall_link_config_set_group(config, group, NULL));
    OK(partywall_link_client_new(alice, "alice", config, &client, NULL));
    copied(config, group);
    here = connect_link(client, address);
    OK(partywall_link_sent_position(here, &stream, &before, NULL));
    send_numbers(here, 0, 5); /* kept, although the server is not there */
    OK(partywall_link_sent_position(here, &stream, &position, NULL));
    CHECK(stream != 0 && position > before);
    STATUS(partywall_link_sent_position(here, NULL, &position, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_sent_position(here, &stream, NULL, NULL), PARTYWALL_ARGUMENT);
    refused(here, address);
    OK(partywall_link_unacked_bytes(here, &bytes, NULL));
    CHECK(bytes > 0);
    STATUS(partywall_link_wait_sent(here, 1000, NULL), PARTYWALL_TIMED_OUT);
    STATUS(partywall_link_wait_acked(here, 1000, NULL), PARTYWALL_TIMED_OUT);

    OK(partywall_link_server_bind(address, bob, "bob", config, &server, NULL));
    there = accept_link(server);
    OK(partywall_link_wait_attached(here, TIMEOUT_NS, NULL));
    OK(partywall_link_wait_sent(here, TIMEOUT_NS, NULL));
    named(here, "bob");
    named(there, "alice");
    OK(partywall_link_status(here, &status));
    CHECK(status == PARTYWALL_LINK_ATTACHED);
    OK(partywall_link_message_free(expect(there, 0)));
    message = expect(there, 1);
    OK(partywall_link_message_attempt(message, &attempt));
    OK(partywall_link_message_position(message, &position));
    CHECK(attempt == 1);
    STATUS(partywall_link_message_data(message, NULL, &len), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_data(message, &data, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_attempt(message, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_position(message, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_link_message_ack(message, NULL));
    STATUS(partywall_link_message_ack(message, NULL), PARTYWALL_HANDLE);
    OK(partywall_link_message_free(expect(there, 2)));
    OK(partywall_link_rewind(there, NULL));
    /*
     * partywall_link_message_reply frees the message even if it refuses an argument. The message is
     * then delivered again.
     */
    message = expect(there, 2);
    STATUS(partywall_link_message_reply(message, NULL, 1, TIMEOUT_NS, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_free(message), PARTYWALL_HANDLE);
    OK(partywall_link_rewind(there, NULL));
    OK(partywall_link_message_free(expect(there, 2)));
    OK(partywall_link_free(there));
    OK(partywall_link_server_free(server));

    OK(partywall_link_server_bind(address, bob, "bob", config, &server, NULL));
    there = accept_link(server);
    message = expect(there, 2);
    OK(partywall_link_message_attempt(message, &attempt));
    CHECK(attempt > 1);
    OK(partywall_link_message_reply(message, "got", 3, TIMEOUT_NS, NULL));
    OK(partywall_link_message_ack(expect(there, 3), NULL));
    OK(partywall_link_message_ack(expect(there, 4), NULL));
    OK(partywall_link_wait_acked(here, TIMEOUT_NS, NULL));
    OK(partywall_link_recv(here, &message, TIMEOUT_NS, NULL));
    OK(partywall_link_message_ack(message, NULL));
    STATUS(partywall_link_recv(here, &message, 0, NULL), PARTYWALL_EMPTY);
    OK(partywall_link_close(here, TIMEOUT_NS, NULL));
    STATUS(partywall_link_close(here, TIMEOUT_NS, NULL), PARTYWALL_HANDLE);
    STATUS(partywall_link_recv(there, &message, TIMEOUT_NS, NULL), PARTYWALL_FINISHED);
    OK(partywall_link_close(there, TIMEOUT_NS, NULL));
    OK(partywall_link_server_free(server));
    OK(partywall_link_client_free(client));
    OK(partywall_link_config_free(config));
    OK(partywall_link_group_free(group));
}

/*
 * An event loop drives both ends of a link over a socket. Without the loop neither end would
 * advance, because no thread waits for them.
 */
static void in_loop(const char *address) {
    partywall_loop *loop = NULL;
    partywall_link_group *group = NULL;
    partywall_link_config *config = NULL;
    partywall_link_client *client = NULL;
    partywall_link_server *server = NULL;
    partywall_link *here = NULL, *there = NULL;
    partywall_link_message *message = NULL;
    uint32_t next = 0;
    size_t count = 0;
    OK(partywall_loop_new(&loop, NULL));
    OK(partywall_link_group_new(&group, NULL));
    OK(partywall_loop_add_links(loop, group, 9, NULL));
    STATUS(partywall_loop_add_links(loop, group, 9, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_link_config_new(&config, NULL));
    OK(partywall_link_config_set(config, "transport", PARTYWALL_TRANSPORT_SOCKET, NULL));
    OK(partywall_link_config_set_group(config, group, NULL));
    OK(partywall_link_server_bind(address, NULL, "bob", config, &server, NULL));
    OK(partywall_link_client_new(NULL, "alice", config, &client, NULL));
    here = connect_link(client, address);
    send_numbers(here, 0, 10);
    while (next < 10) {
        partywall_event event;
        OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
        CHECK(count == 1 && event.tag == 9);
        if (there == NULL) {
            int32_t status = partywall_link_server_accept(server, &there, 0, NULL);
            CHECK(status == PARTYWALL_OK || status == PARTYWALL_TIMED_OUT);
        }
        while (there != NULL && partywall_link_recv(there, &message, 0, NULL) == PARTYWALL_OK) {
            OK(partywall_link_message_ack(message, NULL));
            next++;
        }
    }
    /*
     * Once all messages are received, partywall_link_group_poll leaves the loop without events of
     * the group.
     */
    for (int quiet = 0, turns = 0; quiet < 2; turns++) {
        partywall_event event;
        CHECK(turns < 1000);
        OK(partywall_link_group_poll(group, &count, 0, NULL));
        int32_t status = partywall_loop_wait(loop, &event, 1, &count, 0, NULL);
        CHECK(status == PARTYWALL_OK || status == PARTYWALL_TIMED_OUT);
        quiet = count == 0 ? quiet + 1 : 0;
    }
    OK(partywall_link_free(here));
    OK(partywall_link_free(there));
    OK(partywall_link_client_free(client));
    OK(partywall_link_server_free(server));
    OK(partywall_link_config_free(config));
    OK(partywall_link_group_free(group));
    OK(partywall_loop_free(loop));
}

/*
 * One turn of this program's own event loop: waits for the descriptor and the timer of the group of
 * links, then polls the group.
 */
static void turn(partywall_link_group *group, int32_t fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    int64_t timer = 0;
    size_t count = 0;
    OK(partywall_link_group_next_timer(group, &timer));
    CHECK(timer >= -1);
    if (timer < 0 || timer > TIMEOUT_NS) {
        timer = TIMEOUT_NS;
    }
    CHECK(poll(&entry, 1, (int)((timer + 999999) / 1000000)) >= 0);
    OK(partywall_link_group_poll(group, &count, 0, NULL));
}

/*
 * One poll of the group's descriptor drives both ends of a link. Unreceived messages alone do not
 * make the descriptor readable.
 */
static void by_descriptor(const char *address, int32_t transport) {
    partywall_link_group *group = NULL;
    partywall_link_config *config = NULL;
    partywall_link_client *client = NULL;
    partywall_link_server *server = NULL;
    partywall_link *here = NULL, *there = NULL;
    partywall_link_message *message = NULL;
    struct pollfd entry = {-1, POLLIN, 0};
    int32_t status;
    OK(partywall_link_group_new(&group, NULL));
    OK(partywall_link_group_fd(group, &entry.fd));
    OK(partywall_link_config_new(&config, NULL));
    OK(partywall_link_config_set(config, "transport", (uint64_t)transport, NULL));
    OK(partywall_link_config_set_group(config, group, NULL));
    OK(partywall_link_server_bind(address, NULL, "bob", config, &server, NULL));
    OK(partywall_link_client_new(NULL, "alice", config, &client, NULL));
    here = connect_link(client, address);
    while ((status = partywall_link_server_accept(server, &there, 0, NULL)) == PARTYWALL_TIMED_OUT) {
        turn(group, entry.fd);
    }
    OK(status);
    for (uint32_t next = 0; next < 100; next++) {
        OK(partywall_link_send(here, &next, sizeof next, 0, NULL));
        while ((status = partywall_link_recv(there, &message, 0, NULL)) == PARTYWALL_EMPTY) {
            turn(group, entry.fd);
        }
        OK(status);
        OK(partywall_link_message_ack(message, NULL));
        while ((status = partywall_link_wait_acked(here, 0, NULL)) == PARTYWALL_TIMED_OUT) {
            turn(group, entry.fd);
        }
        OK(status);
    }
    OK(partywall_link_send(here, "unreceived", 10, 0, NULL));
    for (int quiet = 0, turns = 0; quiet < 2; turns++) {
        CHECK(turns < 1000);
        size_t count = 0;
        OK(partywall_link_group_poll(group, &count, 0, NULL));
        /*
         * The server has received the message after one of the first waits. The loop ends once two
         * polls in a row find the descriptor not readable.
         */
        quiet = count > 0 && poll(&entry, 1, 0) == 0 ? quiet + 1 : 0;
    }
    while ((status = partywall_link_recv(there, &message, 0, NULL)) == PARTYWALL_EMPTY) {
        turn(group, entry.fd);
    }
    OK(status);
    OK(partywall_link_message_free(message));
    OK(partywall_link_free(here));
    OK(partywall_link_free(there));
    OK(partywall_link_client_free(client));
    OK(partywall_link_server_free(server));
    OK(partywall_link_config_free(config));
    OK(partywall_link_group_free(group));
    STATUS(partywall_link_group_fd(group, &entry.fd), PARTYWALL_HANDLE);
}

/* Every function of links refuses null for each of its pointers, and handles of another type. */
static void misuse(const char *directory, const char *address) {
    partywall_link_config *config = NULL;
    partywall_link_group *group = NULL;
    partywall_link_client *client = NULL;
    partywall_link_server *server = NULL;
    partywall_link *link = NULL;
    partywall_link_message *message = NULL;
    const void *data = NULL;
    size_t len = 0;
    uint64_t bytes = 0;
    int32_t number = 0;
    partywall_link_event event;
    partywall_error *error = NULL;
    char text[100];
    STATUS(partywall_link_group_new(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_group_poll(NULL, &len, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_loop_add_links(NULL, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_group_fd(NULL, &number), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_group_next_timer(NULL, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_link_group_new(&group, NULL));
    STATUS(partywall_link_group_poll(group, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_group_fd(group, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_group_next_timer(group, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_link_group_free(group));
    OK(partywall_link_group_free(NULL));
    OK(partywall_link_config_new(&config, NULL));
    STATUS(partywall_link_config_set_group(NULL, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_config_set_group(config, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_config_set_group(config, (partywall_link_group *)config, NULL),
           PARTYWALL_HANDLE);
    OK(partywall_link_config_set(config, "slab_bytes", 1 << 20, NULL));
    STATUS(partywall_link_config_new(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_config_set(NULL, "wait", 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_config_set(config, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_config_set(config, "wait", 9, NULL), PARTYWALL_SETTING);
    STATUS(partywall_link_client_new(directory, NULL, NULL, &client, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_client_new(directory, "a", NULL, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_client_new(NULL, "", NULL, &client, NULL), 511);
    OK(partywall_link_client_new(NULL, "a", config, &client, NULL));
    STATUS(partywall_link_connect(NULL, address, "b", "c", &link, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_connect(client, NULL, "b", "c", &link, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_connect(client, address, NULL, "c", &link, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_connect(client, address, "b", NULL, &link, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_connect(client, address, "b", "c", NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_connect((partywall_link_client *)config, address, "b", "c", &link, NULL),
           PARTYWALL_HANDLE);
    STATUS(partywall_link_server_bind(NULL, NULL, "b", NULL, &server, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_bind(address, NULL, NULL, NULL, &server, NULL),
           PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_bind(address, NULL, "b", NULL, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_accept(NULL, &link, 0, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_link_server_bind(address, NULL, "b", config, &server, NULL));
    STATUS(partywall_link_server_accept(server, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_accept(server, &link, 0, NULL), PARTYWALL_TIMED_OUT);
    OK(partywall_link_connect(client, address, "b", "c", &link, NULL));
    STATUS(partywall_link_send(NULL, "x", 1, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_send(link, NULL, 1, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_recv(NULL, &message, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_recv(link, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_wait_attached(NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_wait_acked(NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_rewind(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_unacked_bytes(NULL, &bytes, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_unacked_bytes(link, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_status(NULL, &number), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_status(link, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_status_text(NULL, text, sizeof text, &len, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_status_text(link, NULL, 5, &len, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_status_text(link, text, sizeof text, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_next_event(NULL, &event, sizeof event, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_next_event(link, NULL, sizeof event, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_next_event(link, &event, SIZE_MAX, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_last_refusal(server, NULL, 8, &len, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_next_event((partywall_link *)client, &event, sizeof event, 0, NULL),
           PARTYWALL_HANDLE);
    STATUS(partywall_link_server_last_refusal(NULL, text, sizeof text, &len, NULL),
           PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_last_refusal(server, text, sizeof text, NULL, NULL),
           PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_take_open_error(NULL, &error, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_server_take_open_error(server, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_close(NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_data(NULL, &data, &len), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_attempt(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_position(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_ack(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_link_message_reply(NULL, "x", 1, 0, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_link_message_free(NULL));
    OK(partywall_link_free(NULL));
    OK(partywall_link_free(link));
    STATUS(partywall_link_send(link, "x", 1, 0, NULL), PARTYWALL_HANDLE);
    STATUS(partywall_link_next_event(link, &event, sizeof event, 0, NULL), PARTYWALL_HANDLE);
    OK(partywall_link_server_free(server));
    STATUS(partywall_link_server_free(server), PARTYWALL_HANDLE);
    OK(partywall_link_client_free(client));
    STATUS(partywall_link_client_free(client), PARTYWALL_HANDLE);
    OK(partywall_link_config_free(config));
    STATUS(partywall_link_config_free(config), PARTYWALL_HANDLE);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    static char alice[600], bob[600];
    snprintf(alice, sizeof alice, "%s/alice", argv[1]);
    snprintf(bob, sizeof bob, "%s/bob", argv[1]);
    CHECK(mkdir(alice, 0700) == 0 && mkdir(bob, 0700) == 0);
    restart(alice, bob, address);
    in_loop(address);
    refusing(address);
    by_descriptor(address, PARTYWALL_TRANSPORT_SOCKET);
    by_descriptor(address, PARTYWALL_TRANSPORT_AUTO);
    misuse(argv[1], address);
    return 0;
}
