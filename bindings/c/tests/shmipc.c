/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The protocol shmipc as client and as server: with threads, in a loop, on one address together
 * with Partywall's own protocol, and with wrong arguments. */
#include "check.h"

#define MESSAGES 100

static void *serve(void *session) {
    partywall_stream *stream = NULL;
    while (partywall_session_accept(session, 0, &stream, -1, NULL) == PARTYWALL_OK) {
        const void *data = NULL;
        size_t len = 0;
        while (partywall_stream_recv_view(stream, &data, &len, -1, NULL) == PARTYWALL_OK) {
            OK(partywall_stream_send(stream, data, len, -1, NULL));
        }
        OK(partywall_stream_free(stream));
    }
    return NULL;
}

/* Accepts two sessions, of which each may be of shmipc or of Partywall's own protocol. */
static void *accept_two(void *listener) {
    for (int i = 0; i < 2; i++) {
        partywall_session *session = NULL;
        pthread_t thread;
        OK(partywall_session_listener_accept(listener, 0, &session, TIMEOUT_NS, NULL));
        CHECK(pthread_create(&thread, NULL, serve, session) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        OK(partywall_session_free(session));
    }
    return NULL;
}

static void echo(partywall_session *session) {
    static char sent[200000], answer[200000];
    static const size_t sizes[] = {1, 48, 8172, 8173, 200000};
    partywall_stream *stream = NULL;
    size_t len = 0;
    OK(partywall_session_open(session, NULL, 0, 0, &stream, TIMEOUT_NS, NULL));
    for (size_t i = 0; i < MESSAGES; i++) {
        size_t size = sizes[i % (sizeof sizes / sizeof *sizes)];
        memset(sent, (int)i + 1, size);
        OK(partywall_stream_send(stream, sent, size, TIMEOUT_NS, NULL));
        OK(partywall_stream_recv_copy(stream, answer, sizeof answer, &len, TIMEOUT_NS, NULL));
        CHECK(len == size && memcmp(sent, answer, size) == 0);
    }
    OK(partywall_stream_finish(stream, NULL));
    OK(partywall_stream_free(stream));
    OK(partywall_session_close(session, 0, "", NULL));
    OK(partywall_session_wait_finished(session, TIMEOUT_NS, NULL));
    OK(partywall_session_free(session));
}

/* One address serves clients of shmipc and of Partywall's own protocol. */
static void both_protocols(const char *address, partywall_shmipc *shmipc) {
    partywall_session_listener *listener = NULL;
    partywall_session *session = NULL;
    pthread_t thread;
    int32_t transport = 0, state = -1;
    uint32_t reason = 1;
    OK(partywall_session_listener_bind(address, NULL, NULL, 0, &listener, NULL));
    OK(partywall_session_listener_add_shmipc(listener, shmipc, NULL));
    CHECK(pthread_create(&thread, NULL, accept_two, listener) == 0);
    OK(partywall_shmipc_connect(shmipc, address, NULL, NULL, 0, &session, NULL));
    OK(partywall_session_transport(session, &transport, &reason));
    CHECK(transport == PARTYWALL_TRANSPORT_PROTOCOL && reason == 0);
    OK(partywall_shmipc_hot_restart_state(shmipc, &state));
    CHECK(state == PARTYWALL_HOT_RESTART_NEVER);
    STATUS(partywall_shmipc_hot_restart(shmipc, 0, NULL), 812);
    echo(session);
    OK(partywall_session_connect(address, NULL, NULL, 0, &session, NULL));
    echo(session);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(partywall_shmipc_hot_restart(shmipc, 7, NULL));
    OK(partywall_shmipc_hot_restart_state(shmipc, &state));
    CHECK(state == PARTYWALL_HOT_RESTART_DONE);
    STATUS(partywall_shmipc_hot_restart(shmipc, 7, NULL), 813);
    OK(partywall_session_listener_free(listener));
}

struct connecting_in_loop {
    const char *address;
    partywall_shmipc *shmipc;
};

/* A client of shmipc whose session is driven by an event loop. */
static void *client_in_loop(void *argument) {
    struct connecting_in_loop *it = argument;
    partywall_loop *loop = NULL;
    partywall_session *session = NULL;
    partywall_stream *stream = NULL;
    const void *data = NULL;
    size_t len = 0, count = 0, received = 0;
    OK(partywall_loop_new(&loop, NULL));
    OK(partywall_shmipc_connect(it->shmipc, it->address, NULL, loop, 1, &session, NULL));
    OK(partywall_session_open(session, NULL, 0, 2, &stream, 0, NULL));
    OK(partywall_stream_send(stream, "question", 8, 0, NULL));
    while (received < MESSAGES) {
        partywall_event event;
        OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
        CHECK(count == 1);
        while (event.tag == 2
               && partywall_stream_recv_view(stream, &data, &len, 0, NULL) == PARTYWALL_OK) {
            CHECK(len == 8 && memcmp(data, "question", 8) == 0);
            if (++received < MESSAGES) {
                OK(partywall_stream_send(stream, "question", 8, 0, NULL));
            }
        }
    }
    OK(partywall_stream_finish(stream, NULL));
    OK(partywall_stream_free(stream));
    OK(partywall_session_close(session, 0, "", NULL));
    int32_t status;
    while ((status = partywall_session_wait_finished(session, 0, NULL)) == PARTYWALL_TIMED_OUT) {
        partywall_event event;
        OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
    }
    CHECK(status == PARTYWALL_OK);
    OK(partywall_session_free(session));
    OK(partywall_loop_free(loop));
    return NULL;
}

/* A server of shmipc in one event loop, and its client in another loop. */
static void in_loops(const char *address, partywall_shmipc *shmipc) {
    partywall_loop *loop = NULL;
    partywall_session_listener *listener = NULL;
    partywall_session *session = NULL;
    partywall_stream *stream = NULL;
    struct connecting_in_loop it = {address, shmipc};
    pthread_t thread;
    size_t answered = 0;
    int is_over = 0;
    OK(partywall_loop_new(&loop, NULL));
    OK(partywall_session_listener_bind(address, NULL, loop, 1, &listener, NULL));
    OK(partywall_session_listener_add_shmipc(listener, shmipc, NULL));
    CHECK(pthread_create(&thread, NULL, client_in_loop, &it) == 0);
    while (!is_over) {
        partywall_event events[8];
        size_t count = 0, len = 0;
        const void *data = NULL;
        OK(partywall_loop_wait(loop, events, 8, &count, TIMEOUT_NS, NULL));
        CHECK(count > 0);
        if (session == NULL) {
            int32_t status = partywall_session_listener_accept(listener, 2, &session, 0, NULL);
            CHECK(status == PARTYWALL_OK || status == PARTYWALL_TIMED_OUT);
        }
        if (session != NULL && stream == NULL) {
            int32_t status = partywall_session_accept(session, 3, &stream, 0, NULL);
            CHECK(status == PARTYWALL_OK || status == PARTYWALL_WOULD_BLOCK);
        }
        int32_t status = PARTYWALL_EMPTY;
        while (stream != NULL
               && (status = partywall_stream_recv_view(stream, &data, &len, 0, NULL)) == 0) {
            OK(partywall_stream_send(stream, data, len, 0, NULL));
            answered++;
        }
        is_over = status != PARTYWALL_EMPTY;
    }
    CHECK(answered == MESSAGES);
    OK(partywall_stream_free(stream));
    OK(partywall_session_free(session));
    OK(partywall_session_listener_free(listener));
    OK(partywall_loop_free(loop));
    CHECK(pthread_join(thread, NULL) == 0);
}

static void misuse(const char *address) {
    partywall_shmipc_config *config = NULL;
    partywall_shmipc *shmipc = NULL;
    partywall_session *session = NULL;
    partywall_session_listener *listener = NULL;
    int32_t state = 0;
    OK(partywall_shmipc_config_new(&config, NULL));
    STATUS(partywall_shmipc_config_new(NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set(NULL, "queue_cap", 16, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set(config, NULL, 16, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set(config, "ring_bytes", 16, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set(config, "mem_map_type", 2, NULL), PARTYWALL_SETTING);
    STATUS(partywall_shmipc_config_set_text(NULL, "directory", "/", NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set_text(config, NULL, "/", NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set_text(config, "directory", NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_set_text(config, "queue_cap", "/", NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_config_add_slices(NULL, 4096, 100), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_new(NULL, NULL, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_shmipc_config_add_slices(config, 4096, 40));
    STATUS(partywall_shmipc_new(config, &shmipc, NULL), 801);
    OK(partywall_shmipc_config_add_slices(config, 65536, 60));
    OK(partywall_shmipc_new(config, &shmipc, NULL));
    STATUS(partywall_shmipc_connect(NULL, address, NULL, NULL, 0, &session, NULL),
           PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_connect(shmipc, NULL, NULL, NULL, 0, &session, NULL),
           PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_connect(shmipc, address, NULL, NULL, 0, NULL, NULL),
           PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_connect(shmipc, address, NULL, NULL, 0, &session, NULL), 332);
    STATUS(partywall_session_listener_add_shmipc(NULL, shmipc, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_session_listener_bind(address, NULL, NULL, 0, &listener, NULL));
    STATUS(partywall_session_listener_add_shmipc(listener, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_session_listener_add_shmipc(listener, (partywall_shmipc *)config, NULL),
           PARTYWALL_HANDLE);
    STATUS(partywall_shmipc_hot_restart(NULL, 1, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_hot_restart_state(NULL, &state), PARTYWALL_ARGUMENT);
    STATUS(partywall_shmipc_hot_restart_state(shmipc, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_session_listener_free(listener));
    OK(partywall_shmipc_free(shmipc));
    STATUS(partywall_shmipc_free(shmipc), PARTYWALL_HANDLE);
    OK(partywall_shmipc_free(NULL));
    OK(partywall_shmipc_config_free(config));
    STATUS(partywall_shmipc_config_free(config), PARTYWALL_HANDLE);
    OK(partywall_shmipc_config_free(NULL));
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    partywall_shmipc *shmipc = NULL;
    misuse(address);
    OK(partywall_shmipc_new(NULL, &shmipc, NULL));
    both_protocols(address, shmipc);
    in_loops(address, shmipc);
    OK(partywall_shmipc_free(shmipc));
    return 0;
}
