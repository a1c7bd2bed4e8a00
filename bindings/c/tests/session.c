/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sessions and streams: with a thread for each session, and a server of many streams in one
 * loop. */
#include "check.h"
#include <unistd.h>

#define STREAMS 30
#define MESSAGES 20

struct sessions {
    partywall_session_listener *listener;
    partywall_session *client, *server;
};

struct opening {
    const char *address;
    partywall_session *session;
};

static void *connect_session(void *argument) {
    struct opening *it = argument;
    OK(partywall_session_connect(it->address, NULL, NULL, 0, &it->session, NULL));
    return NULL;
}

static struct sessions make_sessions(const char *address) {
    struct sessions pair;
    struct opening it = {address, NULL};
    pthread_t thread;
    OK(partywall_session_listener_bind(address, NULL, NULL, 0, &pair.listener, NULL));
    CHECK(pthread_create(&thread, NULL, connect_session, &it) == 0);
    OK(partywall_session_listener_accept(pair.listener, 0, &pair.server, TIMEOUT_NS, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    pair.client = it.session;
    return pair;
}

static void free_sessions(struct sessions pair) {
    OK(partywall_session_free(pair.client));
    OK(partywall_session_free(pair.server));
    OK(partywall_session_listener_free(pair.listener));
}

/*
 * Sends messages of a stream with each function that sends, and checks the stream's metadata and
 * its end.
 */
static void messages(struct sessions pair) {
    static char big[100000], copy[100000];
    partywall_stream *here = NULL, *there = NULL;
    partywall_message *message = NULL;
    partywall_reservation *reservation = NULL;
    const void *view = NULL;
    void *data = NULL;
    size_t len = 0;
    memset(big, 's', sizeof big);
    OK(partywall_session_open(pair.client, "meta", 4, 0, &here, TIMEOUT_NS, NULL));
    OK(partywall_session_accept(pair.server, 0, &there, TIMEOUT_NS, NULL));
    OK(partywall_stream_metadata(there, &view, &len));
    CHECK(len == 4 && memcmp(view, "meta", 4) == 0);
    STATUS(partywall_session_accept(pair.server, 0, &there, 0, NULL), PARTYWALL_WOULD_BLOCK);
    STATUS(partywall_session_accept(pair.server, 0, &there, 1000, NULL), PARTYWALL_TIMED_OUT);

    OK(partywall_stream_send(here, "one", 3, 0, NULL));
    OK(partywall_stream_recv_view(there, &view, &len, TIMEOUT_NS, NULL));
    CHECK(len == 3 && memcmp(view, "one", 3) == 0);
    OK(partywall_stream_send(here, big, sizeof big, TIMEOUT_NS, NULL));
    STATUS(partywall_stream_recv_copy(there, copy, 5, &len, TIMEOUT_NS, NULL),
           PARTYWALL_BUFFER_TOO_SHORT);
    CHECK(len == sizeof big);
    OK(partywall_stream_recv_copy(there, copy, sizeof copy, &len, 0, NULL));
    CHECK(memcmp(copy, big, sizeof big) == 0);
    STATUS(partywall_stream_recv_view(there, &view, &len, 0, NULL), PARTYWALL_EMPTY);

    OK(partywall_stream_reserve(here, 2000, &data, &reservation, 0, NULL));
    memset(data, 'r', 2000);
    OK(partywall_reservation_truncate(reservation, 1500));
    STATUS(partywall_stream_commit(there, reservation, 0, NULL), PARTYWALL_FOREIGN_RESERVATION);
    OK(partywall_stream_commit(here, reservation, TIMEOUT_NS, NULL));
    STATUS(partywall_reservation_abort(reservation), PARTYWALL_HANDLE);
    OK(partywall_stream_recv(there, &message, TIMEOUT_NS, NULL));
    OK(partywall_message_data(message, &view, &len));
    CHECK(len == 1500 && ((const char *)view)[1499] == 'r');
    OK(partywall_message_free(message));

    OK(partywall_stream_finish(here, NULL));
    STATUS(partywall_stream_send(here, "x", 1, 0, NULL), PARTYWALL_FINISHED_HERE);
    STATUS(partywall_stream_recv_view(there, &view, &len, TIMEOUT_NS, NULL), PARTYWALL_FINISHED);
    OK(partywall_stream_finish(there, NULL));
    STATUS(partywall_stream_recv_view(here, &view, &len, TIMEOUT_NS, NULL), PARTYWALL_FINISHED);
    OK(partywall_stream_free(here));
    OK(partywall_stream_free(there));
}

static void properties(struct sessions pair) {
    partywall_peer peer;
    partywall_sender_stats stats;
    int32_t transport = -1;
    uint32_t reason = 0;
    char text[200];
    size_t len = 0, count = 9;
    OK(partywall_session_peer(pair.client, &peer, sizeof peer));
    CHECK(peer.has_credentials == 1 && peer.pid == getpid() && peer.is_trusted == 1);
    OK(partywall_session_peer_text(pair.server, text, sizeof text, &len, NULL));
    CHECK(len > 0);
    OK(partywall_session_transport(pair.client, &transport, &reason));
    CHECK(transport == PARTYWALL_TRANSPORT_SHARED_MEMORY || transport == PARTYWALL_TRANSPORT_SOCKET);
    CHECK((transport == PARTYWALL_TRANSPORT_SOCKET) == (reason != 0));
    OK(partywall_session_transport_text(pair.client, text, sizeof text, &len, NULL));
    CHECK(len > 0);
    OK(partywall_session_sender_stats(pair.client, &stats, sizeof stats));
    CHECK(stats.bytes > 0);
    OK(partywall_session_wait_drained(pair.client, TIMEOUT_NS, NULL));
    OK(partywall_session_streams(pair.client, &count));
    CHECK(count == 0);
}

/* The codes with which one side ends a stream or session are in the error objects of its peer. */
static void codes(struct sessions pair) {
    partywall_stream *here = NULL, *there = NULL;
    partywall_error *error = NULL;
    const void *view = NULL;
    size_t len = 0;
    int32_t reason = 0;
    OK(partywall_session_open(pair.client, NULL, 0, 0, &here, TIMEOUT_NS, NULL));
    OK(partywall_session_accept(pair.server, 0, &there, TIMEOUT_NS, NULL));
    STATUS(partywall_stream_reset(here, 0xffffff00, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_stream_stop(here, 0xffffffff, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_stream_reset(here, 77, NULL));
    STATUS(partywall_stream_recv_view(there, &view, &len, TIMEOUT_NS, &error),
           PARTYWALL_STREAM_RESET);
    CHECK(partywall_error_application_code(error) == 77);
    OK(partywall_error_free(error));
    OK(partywall_stream_stop(here, 78, NULL));
    int32_t status;
    while ((status = partywall_stream_send(there, "x", 1, TIMEOUT_NS, &error)) == 0) {
    }
    CHECK(status == PARTYWALL_STREAM_STOPPED && partywall_error_application_code(error) == 78);
    OK(partywall_error_free(error));
    OK(partywall_stream_wait_stopped(there, &reason, &error, TIMEOUT_NS, NULL));
    CHECK(reason == PARTYWALL_STREAM_STOPPED && partywall_error_application_code(error) == 78);
    OK(partywall_error_free(error));
    STATUS(partywall_stream_wait_stopped(NULL, &reason, &error, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_stream_wait_stopped(there, NULL, &error, 0, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_stream_free(here));
    OK(partywall_stream_free(there));

    STATUS(partywall_session_wait_finished(pair.server, 0, NULL), PARTYWALL_TIMED_OUT);
    OK(partywall_session_wait_drained(pair.server, TIMEOUT_NS, NULL));
    OK(partywall_session_go_away(pair.server, 5, NULL));
    STATUS(partywall_session_close(pair.client, 0xffffff00, "", NULL), PARTYWALL_ARGUMENT);
    OK(partywall_session_close(pair.client, 79, "over", NULL));
    OK(partywall_session_wait_finished(pair.client, TIMEOUT_NS, NULL));
    OK(partywall_session_wait_finished(pair.server, TIMEOUT_NS, NULL));
    STATUS(partywall_session_wait_closed(NULL, &reason, &error, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_session_wait_closed(pair.server, NULL, &error, 0, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_session_wait_closed(pair.client, &reason, NULL, 0, NULL));
    CHECK(reason == 401);
    OK(partywall_session_wait_closed(pair.server, &reason, &error, TIMEOUT_NS, NULL));
    CHECK(reason == 411 && partywall_error_application_code(error) == 79);
    CHECK(strstr(partywall_error_message(error), "over") != NULL);
    OK(partywall_error_free(error));
    STATUS(partywall_session_open(pair.server, NULL, 0, 0, &there, TIMEOUT_NS, &error), 411);
    CHECK(partywall_error_application_code(error) == 79);
    CHECK(strstr(partywall_error_message(error), "over") != NULL);
    OK(partywall_error_free(error));
}

/*
 * A client thread: opens many streams of one session, sends messages in each, and receives the
 * answers.
 */
static void *open_many(void *address) {
    partywall_session *session = NULL;
    partywall_stream *streams[STREAMS];
    OK(partywall_session_connect(address, NULL, NULL, 0, &session, NULL));
    for (size_t i = 0; i < STREAMS; i++) {
        OK(partywall_session_open(session, &i, sizeof i, 0, &streams[i], TIMEOUT_NS, NULL));
    }
    for (size_t round = 0; round < MESSAGES; round++) {
        for (size_t i = 0; i < STREAMS; i++) {
            OK(partywall_stream_send(streams[i], &round, sizeof round, TIMEOUT_NS, NULL));
        }
        for (size_t i = 0; i < STREAMS; i++) {
            size_t answer = 0, len = 0;
            OK(partywall_stream_recv_copy(streams[i], &answer, sizeof answer, &len, TIMEOUT_NS,
                                          NULL));
            CHECK(len == sizeof answer && answer == round + i);
        }
    }
    for (size_t i = 0; i < STREAMS; i++) {
        OK(partywall_stream_free(streams[i]));
    }
    OK(partywall_session_free(session));
    return NULL;
}

/* Serves the streams of the client's session in one thread, with an event loop. */
static void serve_in_loop(const char *address) {
    enum { LISTENER = 1, SESSION = 2, FIRST = 100 };
    partywall_loop *loop = NULL;
    partywall_session_listener *listener = NULL;
    partywall_session *session = NULL;
    partywall_stream *streams[STREAMS] = {NULL};
    int32_t reason = 0;
    size_t accepted = 0, ended = 0, numbers[STREAMS] = {0};
    pthread_t thread;
    OK(partywall_loop_new(&loop, NULL));
    OK(partywall_session_listener_bind(address, NULL, loop, LISTENER, &listener, NULL));
    CHECK(pthread_create(&thread, NULL, open_many, (void *)address) == 0);
    while (ended < STREAMS) {
        partywall_event events[16];
        size_t count = 0;
        OK(partywall_loop_wait(loop, events, 16, &count, TIMEOUT_NS, NULL));
        CHECK(count > 0);
        for (size_t i = 0; i < count; i++) {
            if (events[i].tag == LISTENER) {
                int32_t status =
                    partywall_session_listener_accept(listener, SESSION, &session, 0, NULL);
                CHECK(status == PARTYWALL_OK || status == PARTYWALL_TIMED_OUT);
                continue;
            }
            if (events[i].tag == SESSION) {
                partywall_stream *stream = NULL;
                while (partywall_session_accept(session, FIRST + accepted, &stream, 0, NULL) == 0) {
                    const void *data = NULL;
                    size_t len = 0;
                    CHECK(accepted < STREAMS);
                    OK(partywall_stream_metadata(stream, &data, &len));
                    CHECK(len == sizeof numbers[0]);
                    memcpy(&numbers[accepted], data, len);
                    STATUS(partywall_stream_send(stream, "x", 1, 5, NULL), PARTYWALL_ARGUMENT);
                    STATUS(partywall_stream_wait_stopped(stream, &reason, NULL, 0, NULL),
                           PARTYWALL_ARGUMENT);
                    STATUS(partywall_session_wait_closed(session, &reason, NULL, 5, NULL),
                           PARTYWALL_ARGUMENT);
                    streams[accepted++] = stream;
                }
                continue;
            }
            size_t index = events[i].tag - FIRST, message = 0, len = 0;
            if (streams[index] == NULL) {
                continue;
            }
            int32_t status = partywall_stream_recv_copy(streams[index], &message, sizeof message,
                                                        &len, 0, NULL);
            if (status == PARTYWALL_OK) {
                message += numbers[index];
                OK(partywall_stream_send(streams[index], &message, len, 0, NULL));
            } else if (status != PARTYWALL_EMPTY) {
                CHECK(status == PARTYWALL_FINISHED);
                OK(partywall_stream_free(streams[index]));
                streams[index] = NULL;
                ended++;
            }
        }
    }
    int32_t status;
    while ((status = partywall_session_wait_closed(session, &reason, NULL, 0, NULL)) != 0) {
        partywall_event event;
        size_t count = 0;
        CHECK(status == PARTYWALL_TIMED_OUT);
        OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
        CHECK(count == 1);
    }
    CHECK(reason == PARTYWALL_FINISHED);
    OK(partywall_session_free(session));
    OK(partywall_session_listener_free(listener));
    /* The loop writes the session's end to the connection, so it is freed after the session. */
    OK(partywall_loop_free(loop));
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    struct sessions pair = make_sessions(address);
    messages(pair);
    properties(pair);
    codes(pair);
    free_sessions(pair);
    STATUS(partywall_session_free(pair.client), PARTYWALL_HANDLE);
    serve_in_loop(address);
    return 0;
}
