/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every function of a channel, over shared memory and over a socket. */
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <unistd.h>

/*
 * Sends messages of many lengths, and receives them with different functions: view, copy, object.
 */
static void lengths(struct pair pair) {
    static unsigned char sent[200000], copy[200000];
    static const size_t sizes[] = {0, 1, 48, 104, 105, 1024, 1025, 65536, 200000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t len = sizes[i];
        memset(sent, (int)i + 1, len);
        const void *data = NULL;
        size_t found = 1;
        partywall_message *message = NULL;

        OK(partywall_channel_send(pair.client, sent, len, TIMEOUT_NS, NULL));
        OK(partywall_channel_recv_view(pair.server, &data, &found, TIMEOUT_NS, NULL));
        CHECK(found == len && memcmp(data, sent, len) == 0);

        OK(partywall_channel_send(pair.client, sent, len, -1, NULL));
        OK(partywall_channel_recv_copy(pair.server, copy, sizeof copy, &found, -1, NULL));
        CHECK(found == len && memcmp(copy, sent, len) == 0);

        OK(partywall_channel_send(pair.client, sent, len, 0, NULL));
        OK(partywall_channel_recv(pair.server, &message, TIMEOUT_NS, NULL));
        OK(partywall_message_data(message, &data, &found));
        CHECK(found == len && memcmp(data, sent, len) == 0);
        OK(partywall_message_free(message));
    }
}

/* A receive into a buffer that is too short keeps the message for the next receiving call. */
static void short_buffer(struct pair pair) {
    char buffer[4] = "...";
    size_t len = 0;
    const void *data = NULL;
    OK(partywall_channel_send(pair.client, "hello", 5, 0, NULL));
    STATUS(partywall_channel_recv_copy(pair.server, buffer, 3, &len, TIMEOUT_NS, NULL),
           PARTYWALL_BUFFER_TOO_SHORT);
    CHECK(len == 5 && strcmp(buffer, "...") == 0);
    STATUS(partywall_channel_recv_copy(pair.server, NULL, 0, &len, 0, NULL),
           PARTYWALL_BUFFER_TOO_SHORT);
    OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
    CHECK(len == 5 && memcmp(data, "hello", 5) == 0);
    STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);

    /*
     * A message that did not fit into the buffer can also be received as an object. The view of the
     * message before it is no longer valid then.
     */
    partywall_message *message = NULL;
    OK(partywall_channel_send(pair.client, "first", 5, 0, NULL));
    OK(partywall_channel_send(pair.client, "second", 6, 0, NULL));
    OK(partywall_channel_recv_view(pair.server, &data, &len, TIMEOUT_NS, NULL));
    STATUS(partywall_channel_recv_copy(pair.server, buffer, 3, &len, TIMEOUT_NS, NULL),
           PARTYWALL_BUFFER_TOO_SHORT);
    OK(partywall_channel_recv(pair.server, &message, 0, NULL));
    OK(partywall_message_data(message, &data, &len));
    CHECK(len == 6 && memcmp(data, "second", 6) == 0);
    OK(partywall_message_free(message));
    STATUS(partywall_channel_recv(pair.server, &message, 0, NULL), PARTYWALL_EMPTY);
}

/*
 * A message that was kept from its view stays valid after later messages, and after its channel is
 * freed.
 */
static partywall_message *kept(struct pair pair) {
    static char big[100000];
    const void *data = NULL;
    size_t len = 0;
    int32_t is_zero_copy = -1;
    partywall_message *message = NULL, *none = NULL;
    memset(big, 'k', sizeof big);
    OK(partywall_channel_send(pair.client, big, sizeof big, 0, NULL));
    OK(partywall_channel_recv_view(pair.server, &data, &len, TIMEOUT_NS, NULL));
    OK(partywall_channel_keep(pair.server, &message, NULL));
    STATUS(partywall_channel_keep(pair.server, &none, NULL), PARTYWALL_ARGUMENT);
    CHECK(none == NULL);
    OK(partywall_message_is_zero_copy(message, &is_zero_copy));
    CHECK(is_zero_copy == 0 || is_zero_copy == 1);
    return message;
}

/* Reserved memory is shortened, filled and sent, or given back without sending. */
static void reservations(struct pair pair) {
    void *data = NULL;
    const void *view = NULL;
    size_t len = 0;
    partywall_reservation *reservation = NULL;
    OK(partywall_channel_reserve(pair.client, 50000, &data, &reservation, TIMEOUT_NS, NULL));
    memset(data, 'r', 50000);
    OK(partywall_reservation_truncate(reservation, 40000));
    OK(partywall_reservation_data(reservation, &data, &len));
    CHECK(len == 40000);
    STATUS(partywall_channel_commit(pair.server, reservation, 0, NULL),
           PARTYWALL_FOREIGN_RESERVATION);
    OK(partywall_channel_commit(pair.client, reservation, TIMEOUT_NS, NULL));
    STATUS(partywall_channel_commit(pair.client, reservation, 0, NULL), PARTYWALL_HANDLE);
    STATUS(partywall_reservation_abort(reservation), PARTYWALL_HANDLE);
    OK(partywall_channel_recv_view(pair.server, &view, &len, TIMEOUT_NS, NULL));
    CHECK(len == 40000 && ((const char *)view)[39999] == 'r');

    OK(partywall_channel_reserve(pair.client, 50000, &data, &reservation, 0, NULL));
    OK(partywall_reservation_abort(reservation));
    STATUS(partywall_channel_recv_view(pair.server, &view, &len, 0, NULL), PARTYWALL_EMPTY);
}

/*
 * If the peer is gone, partywall_channel_commit frees the reservation, which the caller then need
 * not abort.
 */
static void gone(const char *directory, partywall_config *config) {
    struct pair pair = make_pair(address_in(directory), config);
    void *data = NULL;
    size_t len = 0;
    partywall_reservation *reservation = NULL;
    OK(partywall_channel_reserve(pair.client, 50000, &data, &reservation, TIMEOUT_NS, NULL));
    OK(partywall_channel_free(pair.server));
    STATUS(partywall_channel_commit(pair.client, reservation, TIMEOUT_NS, NULL),
           PARTYWALL_FINISHED);
    STATUS(partywall_reservation_data(reservation, &data, &len), PARTYWALL_HANDLE);
    OK(partywall_channel_free(pair.client));
    OK(partywall_listener_free(pair.listener));
}

/*
 * A sending direction without room gives PARTYWALL_FULL, and sends again once the peer has
 * received.
 */
static void full(struct pair pair) {
    static char block[900];
    const void *data = NULL;
    size_t len = 0, sent = 0, received = 0;
    int32_t status;
    partywall_error *error = NULL;
    while ((status = partywall_channel_send(pair.client, block, sizeof block, 0, &error)) == 0) {
        sent++;
        CHECK(error == NULL && sent < 1000000);
    }
    CHECK(status == PARTYWALL_FULL && error == NULL);
    STATUS(partywall_channel_send(pair.client, block, sizeof block, 1000000, &error),
           PARTYWALL_TIMED_OUT);
    /*
     * Over a socket, a message counts as sent once the kernel has taken a part of it, so the sender
     * flushes the rest.
     */
    while (partywall_channel_recv_view(pair.server, &data, &len, 0, NULL) == PARTYWALL_OK) {
        CHECK(len == sizeof block);
        received++;
    }
    OK(partywall_channel_flush(pair.client, TIMEOUT_NS, NULL));
    for (; received < sent; received++) {
        OK(partywall_channel_recv_view(pair.server, &data, &len, TIMEOUT_NS, NULL));
        CHECK(len == sizeof block);
    }
    STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
    OK(partywall_channel_send(pair.client, "on", 2, TIMEOUT_NS, NULL));
    OK(partywall_channel_recv_view(pair.server, &data, &len, TIMEOUT_NS, NULL));
    CHECK(len == 2);
}

/* A channel reports its peer process, its transport with the reason, and its counters. */
static void properties(struct pair pair, int32_t wanted_transport, uint32_t wanted_reason,
                  int is_trusted) {
    struct {
        partywall_peer peer;
        char behind[8];
    } place;
    partywall_sender_stats sent, more;
    partywall_receiver_stats received;
    int32_t transport = -1;
    uint32_t reason = 99;
    char text[200];
    size_t len = 0;
    memset(&place, 7, sizeof place);
    OK(partywall_channel_peer(pair.client, &place.peer, sizeof place.peer));
    CHECK(place.peer.has_credentials == 1 && place.peer.pid == getpid());
    CHECK(place.peer.uid == geteuid() && place.peer.gid == getegid());
    CHECK(place.peer.is_trusted == is_trusted);
    CHECK(place.peer.distrust == (is_trusted ? 0 : PARTYWALL_DISTRUST_POLICY));
    CHECK(place.behind[0] == 7);
    OK(partywall_channel_peer(pair.client, &place.peer, sizeof place));
    CHECK(place.behind[0] == 0 && place.behind[7] == 0);
    place.peer.uid = 0x01010101;
    OK(partywall_channel_peer(pair.client, &place.peer, 2 * sizeof(int32_t)));
    CHECK(place.peer.pid == getpid() && place.peer.uid == 0x01010101);
    OK(partywall_channel_peer_text(pair.client, text, sizeof text, &len, NULL));
    CHECK(len > 0 && memmem(text, len, is_trusted ? ", trusted" : "not trusted", 9) != NULL);
    STATUS(partywall_channel_peer_text(pair.client, text, 1, &len, NULL),
           PARTYWALL_BUFFER_TOO_SHORT);

    OK(partywall_channel_transport(pair.server, &transport, &reason));
    CHECK(transport == wanted_transport && reason == wanted_reason);
    OK(partywall_channel_transport_text(pair.server, text, sizeof text, &len, NULL));
    CHECK(memmem(text, len, transport == PARTYWALL_TRANSPORT_SOCKET ? "socket" : "shm", 3) != NULL);

    OK(partywall_channel_sender_stats(pair.client, &sent, sizeof sent));
    OK(partywall_channel_receiver_stats(pair.server, &received, sizeof received));
    CHECK(sent.messages > 0 && received.messages == sent.messages);
    CHECK(received.bytes == sent.bytes);
    OK(partywall_channel_send(pair.client, "one", 3, TIMEOUT_NS, NULL));
    OK(partywall_channel_sender_stats(pair.client, &more, sizeof more));
    CHECK(more.messages == sent.messages + 1 && more.bytes == sent.bytes + 3);
    OK(partywall_channel_recv_copy(pair.server, text, sizeof text, &len, TIMEOUT_NS, NULL));
}

/*
 * After the end of one direction its receiver gets a status, and the other direction still carries
 * messages.
 */
static void ends(struct pair pair) {
    const void *data = NULL;
    size_t len = 0;
    OK(partywall_channel_send(pair.client, "last", 4, 0, NULL));
    OK(partywall_channel_close_write(pair.client, NULL));
    STATUS(partywall_channel_send(pair.client, "more", 4, 0, NULL), PARTYWALL_FINISHED_HERE);
    OK(partywall_channel_recv_view(pair.server, &data, &len, TIMEOUT_NS, NULL));
    STATUS(partywall_channel_recv_view(pair.server, &data, &len, TIMEOUT_NS, NULL),
           PARTYWALL_FINISHED);
    OK(partywall_channel_send(pair.server, "answer", 6, 0, NULL));
    OK(partywall_channel_recv_view(pair.client, &data, &len, TIMEOUT_NS, NULL));
    CHECK(len == 6 && memcmp(data, "answer", 6) == 0);
}

/* An error object has the number of the failure, the errno, and a text with advice. */
static void errors(const char *directory) {
    partywall_error *error = NULL;
    partywall_channel *channel = NULL;
    char missing[600];
    snprintf(missing, sizeof missing, "unix:%s/missing.sock", directory);
    STATUS(partywall_connect(missing, NULL, &channel, &error), 332);
    CHECK(channel == NULL && partywall_error_code(error) == 332);
    CHECK(strstr(partywall_error_message(error), "missing.sock") != NULL);
    OK(partywall_error_free(error));
    STATUS(partywall_connect("no address", NULL, &channel, &error), 301);
    OK(partywall_error_free(error));
    STATUS(partywall_connect("no address", NULL, &channel, NULL), 301);
}

static void all(const char *directory, partywall_config *config, int32_t transport,
                uint32_t reason, int is_trusted) {
    struct pair pair = make_pair(address_in(directory), config);
    const void *data = NULL;
    size_t len = 0;
    char address[600];
    OK(partywall_listener_address(pair.listener, address, sizeof address, &len, NULL));
    CHECK(len == strlen(address_in(directory)) && memcmp(address, address_in(directory), len) == 0);
    STATUS(partywall_listener_address(pair.listener, address, 3, &len, NULL),
           PARTYWALL_BUFFER_TOO_SHORT);
    lengths(pair);
    short_buffer(pair);
    reservations(pair);
    properties(pair, transport, reason, is_trusted);
    full(pair);
    partywall_message *message = kept(pair);
    ends(pair);
    free_pair(pair);
    OK(partywall_message_data(message, &data, &len));
    CHECK(len == 100000 && ((const char *)data)[99999] == 'k');
    OK(partywall_message_free(message));
}

/*
 * Arming the receiver gives -1 while there is a message, otherwise a descriptor that becomes
 * readable once there is one.
 */
static void waited_for(const char *address) {
    struct pair pair = make_pair(address, NULL);
    const void *data = NULL;
    size_t len = 0;
    int32_t fd = -1;
    STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
    OK(partywall_channel_arm_recv(pair.server, &fd, NULL));
    CHECK(fd >= 0);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == 0);
    OK(partywall_channel_send(pair.client, "x", 1, 0, NULL));
    CHECK(poll(&polled, 1, 30000) == 1);
    OK(partywall_channel_arm_recv(pair.server, &fd, NULL));
    CHECK(fd == -1);
    OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
    CHECK(len == 1);

    char message[1000] = {0};
    while (partywall_channel_send(pair.client, message, sizeof message, 0, NULL) == PARTYWALL_OK) {
    }
    OK(partywall_channel_arm_send(pair.client, &fd, NULL));
    CHECK(fd >= 0);
    polled.fd = fd;
    CHECK(poll(&polled, 1, 0) == 0);
    while (partywall_channel_recv_view(pair.server, &data, &len, 0, NULL) == PARTYWALL_OK) {
    }
    CHECK(poll(&polled, 1, 30000) == 1);
    OK(partywall_channel_send(pair.client, message, sizeof message, 0, NULL));

    OK(partywall_listener_fd(pair.listener, &fd, NULL));
    polled.fd = fd;
    CHECK(poll(&polled, 1, 0) == 0);
    free_pair(pair);
}

static void *wake(void *channel) {
    OK(partywall_channel_wake(channel, NULL));
    return NULL;
}

/*
 * partywall_channel_wait_recv waits until a wake-up (also one from before the wait), a message, the
 * timeout, or the peer's end.
 */
static void parked(const char *address) {
    struct pair pair = make_pair(address, NULL);
    partywall_receiver_stats stats;
    partywall_config *config = NULL;
    const void *data = NULL;
    size_t len = 0;
    pthread_t thread;
    /*
     * The receiver waits several times, because the library makes it sleep in another way for its
     * first few waits than for later ones.
     */
    for (int i = 0; i < 10; i++) {
        STATUS(partywall_channel_wait_recv(pair.server, 0, NULL), PARTYWALL_TIMED_OUT);
        STATUS(partywall_channel_wait_recv(pair.server, 1000, NULL), PARTYWALL_TIMED_OUT);
        OK(partywall_channel_wake(pair.server, NULL));
        OK(partywall_channel_wait_recv(pair.server, -1, NULL));
        STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
        CHECK(pthread_create(&thread, NULL, wake, pair.server) == 0);
        OK(partywall_channel_wait_recv(pair.server, -1, NULL));
        CHECK(pthread_join(thread, NULL) == 0);
        OK(partywall_channel_receiver_stats(pair.server, &stats, sizeof stats));
        OK(partywall_channel_send(pair.client, "x", 1, 0, NULL));
        OK(partywall_channel_wait_recv(pair.server, 0, NULL));
        OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
        /*
         * The view of the message still occupies the slots in which the receiver expects the next
         * message. The next receiving call ends the view.
         */
        STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
    }
    OK(partywall_channel_free(pair.client));
    int32_t status = PARTYWALL_EMPTY;
    while (status == PARTYWALL_EMPTY) {
        OK(partywall_channel_wait_recv(pair.server, -1, NULL));
        status = partywall_channel_recv_view(pair.server, &data, &len, 0, NULL);
    }
    CHECK(status == PARTYWALL_FINISHED);
    OK(partywall_channel_free(pair.server));
    OK(partywall_listener_free(pair.listener));
    STATUS(partywall_channel_wake(pair.server, NULL), PARTYWALL_HANDLE);

    OK(partywall_config_new(&config, NULL));
    OK(partywall_config_set(config, "transport", PARTYWALL_TRANSPORT_SOCKET, NULL));
    pair = make_pair(address, config);
    STATUS(partywall_channel_wait_recv(pair.server, -1, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_channel_wake(pair.server, NULL), PARTYWALL_ARGUMENT);
    free_pair(pair);
    OK(partywall_config_free(config));
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    CHECK(strcmp(partywall_version(), "0.1.0") == 0 && partywall_abi() == 0);
    partywall_config *config = NULL;
    all(argv[1], NULL, PARTYWALL_TRANSPORT_SHARED_MEMORY, 0, 1);
    gone(argv[1], NULL);
    OK(partywall_config_new(&config, NULL));
    OK(partywall_config_set(config, "transport", PARTYWALL_TRANSPORT_SOCKET, NULL));
    all(argv[1], config, PARTYWALL_TRANSPORT_SOCKET, PARTYWALL_REASON_POLICY, 1);
    OK(partywall_config_set(config, "transport", PARTYWALL_TRANSPORT_SHARED_MEMORY, NULL));
    OK(partywall_config_set(config, "trust", PARTYWALL_TRUST_UNTRUSTED, NULL));
    all(argv[1], config, PARTYWALL_TRANSPORT_SHARED_MEMORY, 0, 0);
    gone(argv[1], config);
    OK(partywall_config_free(config));
    errors(argv[1]);
    waited_for(address_in(argv[1]));
    parked(address_in(argv[1]));
    return 0;
}
