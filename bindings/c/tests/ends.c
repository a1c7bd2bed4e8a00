/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a program learns of a peer that is killed, and of one that ends in good order: the events of
 * a link, and the ends of a session and a stream. The peers are child processes. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct peer {
    pid_t pid;
    int begin;
};

/*
 * Forks a child process that plays the peer, before this process has objects of the library. The
 * child begins to act when begin() writes a byte to its pipe.
 */
static struct peer fork_peer(void (*act)(const char *, const char *), const char *address,
                             const char *directory) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct peer peer = {fork(), ends[1]};
    CHECK(peer.pid >= 0);
    if (peer.pid == 0) {
        char byte;
        /* The kernel kills the child when this test process ends. */
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        close(ends[1]);
        if (read(ends[0], &byte, 1) == 1) {
            act(address, directory);
        }
        _exit(0);
    }
    close(ends[0]);
    return peer;
}

static void begin(struct peer peer) {
    CHECK(write(peer.begin, "b", 1) == 1);
    close(peer.begin);
}

static void end(struct peer peer, int is_killed) {
    int status = 0;
    CHECK(!is_killed || kill(peer.pid, SIGKILL) == 0);
    CHECK(waitpid(peer.pid, &status, 0) == peer.pid);
    CHECK(is_killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The peer of a link: sends one message, and closes its end in good order once it has an answer. */
static void act_on_link(const char *address, const char *directory) {
    partywall_link_client *client = NULL;
    partywall_link *link = NULL;
    partywall_link_message *message = NULL;
    OK(partywall_link_client_new(directory, "alice", NULL, &client, NULL));
    OK(partywall_link_connect(client, address, "bob", "orders", &link, NULL));
    OK(partywall_link_send(link, "x", 1, TIMEOUT_NS, NULL));
    OK(partywall_link_recv(link, &message, TIMEOUT_NS, NULL));
    OK(partywall_link_message_ack(message, NULL));
    OK(partywall_link_close(link, TIMEOUT_NS, NULL));
    OK(partywall_link_client_free(client));
}

static void receive(partywall_link *link) {
    partywall_link_message *message = NULL;
    OK(partywall_link_recv(link, &message, TIMEOUT_NS, NULL));
    OK(partywall_link_message_ack(message, NULL));
}

static partywall_link_event next_event(partywall_link *link) {
    partywall_link_event event;
    memset(&event, 'x', sizeof event);
    OK(partywall_link_next_event(link, &event, sizeof event, TIMEOUT_NS, NULL));
    CHECK(memchr(event.text, 0, sizeof event.text) != NULL && event.text[0] != 0);
    CHECK(event.reserved == 0 && event.epoch == 0);
    return event;
}

/*
 * The server of a link gets an event for each change of its connection: the first client attaches
 * and is killed, then a second client attaches, goes on with the stream of the first, and ends in
 * good order.
 */
static void link_of_killed_client(const char *address, struct peer killed, struct peer next) {
    partywall_link_server *server = NULL;
    partywall_link *link = NULL;
    partywall_link_event event;
    partywall_link_message *message = NULL;
    char text[200] = {0};
    size_t len = 0;
    OK(partywall_link_server_bind(address, NULL, "bob", NULL, &server, NULL));
    begin(killed);
    OK(partywall_link_server_accept(server, &link, TIMEOUT_NS, NULL));
    receive(link);
    event = next_event(link);
    CHECK(event.kind == PARTYWALL_LINK_EVENT_ATTACHED && event.is_resumed == 0);
    STATUS(partywall_link_next_event(link, &event, sizeof event, 0, NULL), PARTYWALL_EMPTY);
    STATUS(partywall_link_next_event(link, &event, sizeof event, 1000, NULL),
           PARTYWALL_TIMED_OUT);
    OK(partywall_link_status_text(link, text, sizeof text - 1, &len, NULL));
    CHECK(strstr(text, "attached over ") == text && strlen(text) == len);

    end(killed, 1);
    event = next_event(link);
    CHECK(event.kind == PARTYWALL_LINK_EVENT_DETACHED && event.is_farewell == 0);
    CHECK(strstr(event.text, "detached: ") == event.text);

    begin(next);
    event = next_event(link);
    CHECK(event.kind == PARTYWALL_LINK_EVENT_ATTACHED && event.is_resumed == 1);
    receive(link);
    OK(partywall_link_send(link, "end", 3, TIMEOUT_NS, NULL));
    STATUS(partywall_link_recv(link, &message, TIMEOUT_NS, NULL), PARTYWALL_FINISHED);
    event = next_event(link);
    CHECK(event.kind == PARTYWALL_LINK_EVENT_DETACHED && event.is_farewell == 1);
    end(next, 0);
    OK(partywall_link_free(link));
    OK(partywall_link_server_free(server));
}

/*
 * The peer of a session: opens a session with one stream, sends a message, and waits for an answer
 * that never comes.
 */
static void act_on_session(const char *address, const char *directory) {
    partywall_session *session = NULL;
    partywall_stream *stream = NULL;
    const void *data = NULL;
    size_t len = 0;
    (void)directory;
    OK(partywall_session_connect(address, NULL, NULL, 0, &session, NULL));
    OK(partywall_session_open(session, NULL, 0, 0, &stream, TIMEOUT_NS, NULL));
    OK(partywall_stream_send(stream, "x", 1, TIMEOUT_NS, NULL));
    partywall_stream_recv_view(stream, &data, &len, TIMEOUT_NS, NULL);
}

/*
 * When a client is killed, its server's wait for the stream and its wait for the session both end
 * with PARTYWALL_DISCONNECTED.
 */
static void session_of_killed_client(const char *address, struct peer killed) {
    partywall_session_listener *listener = NULL;
    partywall_session *session = NULL;
    partywall_stream *stream = NULL;
    partywall_error *cause = NULL;
    int32_t reason = 0;
    OK(partywall_session_listener_bind(address, NULL, NULL, 0, &listener, NULL));
    begin(killed);
    OK(partywall_session_listener_accept(listener, 0, &session, TIMEOUT_NS, NULL));
    OK(partywall_session_accept(session, 0, &stream, TIMEOUT_NS, NULL));
    STATUS(partywall_session_wait_closed(session, &reason, &cause, 0, NULL), PARTYWALL_TIMED_OUT);
    STATUS(partywall_session_wait_closed(session, &reason, &cause, 1000, NULL),
           PARTYWALL_TIMED_OUT);
    STATUS(partywall_stream_wait_stopped(stream, &reason, &cause, 0, NULL), PARTYWALL_TIMED_OUT);
    CHECK(reason == 0 && cause == NULL);

    end(killed, 1);
    OK(partywall_stream_wait_stopped(stream, &reason, &cause, TIMEOUT_NS, NULL));
    CHECK(reason == PARTYWALL_DISCONNECTED && partywall_error_code(cause) == reason);
    OK(partywall_error_free(cause));
    OK(partywall_session_wait_closed(session, &reason, &cause, TIMEOUT_NS, NULL));
    CHECK(reason == PARTYWALL_DISCONNECTED && partywall_error_message(cause)[0] != 0);
    OK(partywall_error_free(cause));
    OK(partywall_session_wait_closed(session, &reason, NULL, 0, NULL));
    CHECK(reason == PARTYWALL_DISCONNECTED);
    OK(partywall_stream_free(stream));
    OK(partywall_session_free(session));
    OK(partywall_session_listener_free(listener));
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    static char links[512], directory[512];
    const char *address = address_in(argv[1]);
    snprintf(links, sizeof links, "unix:%s/link.sock", argv[1]);
    snprintf(directory, sizeof directory, "%s/alice", argv[1]);
    CHECK(mkdir(directory, 0700) == 0);
    struct peer killed = fork_peer(act_on_link, links, directory);
    struct peer next = fork_peer(act_on_link, links, directory);
    struct peer third = fork_peer(act_on_session, address, directory);
    link_of_killed_client(links, killed, next);
    session_of_killed_client(address, third);
    return 0;
}
