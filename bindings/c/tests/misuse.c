/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Wrong arguments of every function: null for each pointer, freed and foreign handles, wrong
 * values. Each wrong argument, and a panic of the library, gets the status that the header
 * names. */
#include "check.h"

/*
 * Panics within the library, in a call that uses the channel. Only builds with debug assertions
 * have this function.
 */
int32_t partywall_test_panic(partywall_channel *channel);

#define NULL_ARGUMENT(call) STATUS(call, PARTYWALL_ARGUMENT)
#define WRONG_HANDLE(call) STATUS(call, PARTYWALL_HANDLE)

struct dialing {
    const char *address;
    partywall_session *session;
};

static void *dial(void *argument) {
    struct dialing *it = argument;
    OK(partywall_session_connect(it->address, NULL, NULL, 0, &it->session, NULL));
    return NULL;
}

/*
 * Each function of an established session and its streams refuses null as the address of a result.
 */
static void places_of_sessions(const char *directory) {
    char address[600];
    partywall_session_listener *listener = NULL;
    struct dialing it = {address, NULL};
    partywall_session *session = NULL;
    partywall_stream *stream = NULL;
    partywall_reservation *reservation = NULL;
    const void *view = NULL;
    void *data = NULL;
    size_t len = 0;
    int32_t number = 0;
    uint32_t reason = 0;
    char buffer[8];
    pthread_t thread;
    snprintf(address, sizeof address, "unix:%s/places.sock", directory);
    OK(partywall_session_listener_bind(address, NULL, NULL, 0, &listener, NULL));
    NULL_ARGUMENT(partywall_session_listener_bind(address, NULL, NULL, 0, NULL, NULL));
    NULL_ARGUMENT(partywall_session_listener_accept(listener, 0, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_listener_address(listener, NULL, 8, &len, NULL));
    NULL_ARGUMENT(partywall_session_listener_address(listener, buffer, 8, NULL, NULL));
    CHECK(pthread_create(&thread, NULL, dial, &it) == 0);
    OK(partywall_session_listener_accept(listener, 0, &session, TIMEOUT_NS, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    NULL_ARGUMENT(partywall_session_open(session, NULL, 1, 0, &stream, 0, NULL));
    NULL_ARGUMENT(partywall_session_open(session, "x", 1, 0, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_accept(session, 0, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_close(session, 0, NULL, NULL));
    NULL_ARGUMENT(partywall_session_wait_closed(session, NULL, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_peer(session, NULL, sizeof(partywall_peer)));
    NULL_ARGUMENT(partywall_session_peer_text(session, NULL, 8, &len, NULL));
    NULL_ARGUMENT(partywall_session_peer_text(session, buffer, 8, NULL, NULL));
    NULL_ARGUMENT(partywall_session_transport(session, NULL, &reason));
    NULL_ARGUMENT(partywall_session_transport(session, &number, NULL));
    NULL_ARGUMENT(partywall_session_transport_text(session, NULL, 8, &len, NULL));
    NULL_ARGUMENT(partywall_session_transport_text(session, buffer, 8, NULL, NULL));
    NULL_ARGUMENT(partywall_session_sender_stats(session, NULL, sizeof(partywall_sender_stats)));
    NULL_ARGUMENT(partywall_session_streams(session, NULL));
    OK(partywall_session_open(session, NULL, 0, 0, &stream, TIMEOUT_NS, NULL));
    NULL_ARGUMENT(partywall_stream_metadata(stream, NULL, &len));
    NULL_ARGUMENT(partywall_stream_metadata(stream, &view, NULL));
    NULL_ARGUMENT(partywall_stream_send(stream, NULL, 1, 0, NULL));
    NULL_ARGUMENT(partywall_stream_reserve(stream, 1, NULL, &reservation, 0, NULL));
    NULL_ARGUMENT(partywall_stream_reserve(stream, 1, &data, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_commit(stream, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_wait_stopped(stream, NULL, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv_view(stream, NULL, &len, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv_view(stream, &view, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv_copy(stream, NULL, 8, &len, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv_copy(stream, buffer, 8, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv(stream, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_keep(stream, NULL, NULL));
    CHECK(view == NULL && data == NULL && reservation == NULL);
    OK(partywall_stream_free(stream));
    OK(partywall_session_free(session));
    OK(partywall_session_free(it.session));
    OK(partywall_session_listener_free(listener));
}

/*
 * Functions of channels refuse lengths that are larger than any object in memory can be. An event
 * loop accepts such a number as the maximum of events, and waits as usual.
 */
static void sizes(struct pair pair, partywall_loop *loop) {
    static char bytes[8];
    static const size_t wrong[] = {SIZE_MAX, SIZE_MAX / 2 + 1};
    partywall_reservation *reservation = NULL;
    partywall_peer peer;
    partywall_sender_stats sent;
    partywall_receiver_stats received;
    partywall_event event;
    void *data = NULL;
    size_t len = 0;
    memset(&peer, 7, sizeof peer);
    for (size_t i = 0; i < 2; i++) {
        NULL_ARGUMENT(partywall_channel_peer(pair.client, &peer, wrong[i]));
        NULL_ARGUMENT(partywall_channel_sender_stats(pair.client, &sent, wrong[i]));
        NULL_ARGUMENT(partywall_channel_receiver_stats(pair.client, &received, wrong[i]));
        NULL_ARGUMENT(partywall_channel_send(pair.client, bytes, wrong[i], 0, NULL));
        NULL_ARGUMENT(partywall_channel_recv_copy(pair.client, bytes, wrong[i], &len, 0, NULL));
        NULL_ARGUMENT(partywall_channel_peer_text(pair.client, bytes, wrong[i], &len, NULL));
        STATUS(partywall_channel_reserve(pair.client, wrong[i], &data, &reservation, -1, NULL),
               PARTYWALL_MESSAGE_TOO_LONG);
        OK(partywall_loop_wait(loop, &event, wrong[i], &len, 0, NULL));
        CHECK(len == 0 && data == NULL && reservation == NULL);
    }
    OK(partywall_channel_peer(pair.client, &peer, 0));
    CHECK(peer.pid == 0x07070707);
}

/* Each function of sessions and streams refuses null for each of its pointers. */
static void sessions(const char *address, partywall_loop *loop) {
    partywall_session_listener *listener = NULL;
    partywall_session *session = NULL;
    partywall_stream *stream = NULL;
    partywall_message *message = NULL;
    partywall_reservation *reservation = NULL;
    const void *view = NULL;
    void *data = NULL;
    size_t len = 0;
    int32_t number = 0;
    uint32_t reason = 0;
    partywall_peer peer;
    partywall_sender_stats sent;
    char buffer[8];
    NULL_ARGUMENT(partywall_session_listener_bind(NULL, NULL, NULL, 0, &listener, NULL));
    NULL_ARGUMENT(partywall_session_listener_bind(address, NULL, loop, 0, NULL, NULL));
    NULL_ARGUMENT(partywall_session_listener_accept(NULL, 0, &session, 0, NULL));
    NULL_ARGUMENT(partywall_session_listener_address(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_session_connect(NULL, NULL, NULL, 0, &session, NULL));
    NULL_ARGUMENT(partywall_session_connect(address, NULL, NULL, 0, NULL, NULL));
    NULL_ARGUMENT(partywall_session_open(NULL, "x", 1, 0, &stream, 0, NULL));
    NULL_ARGUMENT(partywall_session_open(NULL, NULL, 1, 0, &stream, 0, NULL));
    NULL_ARGUMENT(partywall_session_open(NULL, "x", 1, 0, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_accept(NULL, 0, &stream, 0, NULL));
    NULL_ARGUMENT(partywall_session_accept(NULL, 0, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_go_away(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_close(NULL, 0, "", NULL));
    NULL_ARGUMENT(partywall_session_close(NULL, 0, NULL, NULL));
    NULL_ARGUMENT(partywall_session_wait_drained(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_wait_finished(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_session_peer(NULL, &peer, sizeof peer));
    NULL_ARGUMENT(partywall_session_peer(NULL, NULL, sizeof peer));
    NULL_ARGUMENT(partywall_session_peer_text(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_session_transport(NULL, &number, &reason));
    NULL_ARGUMENT(partywall_session_transport_text(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_session_sender_stats(NULL, &sent, sizeof sent));
    NULL_ARGUMENT(partywall_session_streams(NULL, &len));
    NULL_ARGUMENT(partywall_session_streams(NULL, NULL));
    NULL_ARGUMENT(partywall_stream_metadata(NULL, &view, &len));
    NULL_ARGUMENT(partywall_stream_send(NULL, "x", 1, 0, NULL));
    NULL_ARGUMENT(partywall_stream_reserve(NULL, 1, &data, &reservation, 0, NULL));
    NULL_ARGUMENT(partywall_stream_commit(NULL, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_finish(NULL, NULL));
    NULL_ARGUMENT(partywall_stream_reset(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_stop(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv_view(NULL, &view, &len, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv_copy(NULL, buffer, 8, &len, 0, NULL));
    NULL_ARGUMENT(partywall_stream_recv(NULL, &message, 0, NULL));
    NULL_ARGUMENT(partywall_stream_keep(NULL, &message, NULL));
    NULL_ARGUMENT(partywall_stream_pause(NULL, NULL));
    NULL_ARGUMENT(partywall_channel_pause(NULL, NULL));
    WRONG_HANDLE(partywall_stream_pause((partywall_stream *)loop, NULL));
    WRONG_HANDLE(partywall_channel_pause((partywall_channel *)loop, NULL));
    OK(partywall_session_listener_free(NULL));
    OK(partywall_session_free(NULL));
    OK(partywall_stream_free(NULL));
    WRONG_HANDLE(partywall_session_free((partywall_session *)loop));
    WRONG_HANDLE(partywall_stream_free((partywall_stream *)loop));
    WRONG_HANDLE(partywall_session_listener_free((partywall_session_listener *)loop));
    CHECK(partywall_error_application_code(NULL) == 0);
}

static void nulls(const char *address, struct pair pair, partywall_config *config,
                  partywall_loop *loop) {
    partywall_channel *channel = NULL;
    partywall_listener *listener = NULL;
    partywall_message *message = NULL;
    partywall_reservation *reservation = NULL;
    partywall_event event;
    const void *view = NULL;
    void *data = NULL;
    size_t len = 0;
    int32_t number = 0;
    int64_t timer = 0;
    uint32_t reason = 0;
    partywall_peer peer;
    partywall_sender_stats sent;
    partywall_receiver_stats received;
    partywall_config *copy = NULL;
    partywall_link_config *link_copy = NULL;
    uint64_t position = 0;
    char buffer[8];

    NULL_ARGUMENT(partywall_config_new(NULL, NULL));
    NULL_ARGUMENT(partywall_config_copy(NULL, &copy, NULL));
    NULL_ARGUMENT(partywall_config_copy(config, NULL, NULL));
    WRONG_HANDLE(partywall_config_copy((partywall_config *)loop, &copy, NULL));
    NULL_ARGUMENT(partywall_link_config_copy(NULL, &link_copy, NULL));
    NULL_ARGUMENT(partywall_link_name(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_link_peer_name(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_link_wait_sent(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_link_sent_position(NULL, &position, &position, NULL));
    CHECK(copy == NULL && link_copy == NULL);
    NULL_ARGUMENT(partywall_config_set(NULL, "wait", 0, NULL));
    NULL_ARGUMENT(partywall_config_set(config, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_connect(NULL, NULL, &channel, NULL));
    NULL_ARGUMENT(partywall_connect(address, NULL, NULL, NULL));
    NULL_ARGUMENT(partywall_listener_bind(NULL, NULL, &listener, NULL));
    NULL_ARGUMENT(partywall_listener_bind(address, NULL, NULL, NULL));
    NULL_ARGUMENT(partywall_listener_accept(NULL, &channel, 0, NULL));
    NULL_ARGUMENT(partywall_listener_accept(pair.listener, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_listener_address(NULL, buffer, sizeof buffer, &len, NULL));
    NULL_ARGUMENT(partywall_listener_fd(NULL, &number, NULL));
    NULL_ARGUMENT(partywall_listener_fd(pair.listener, NULL, NULL));
    NULL_ARGUMENT(partywall_channel_arm_send(NULL, &number, NULL));
    NULL_ARGUMENT(partywall_channel_arm_send(pair.client, NULL, NULL));
    NULL_ARGUMENT(partywall_channel_arm_recv(NULL, &number, NULL));
    NULL_ARGUMENT(partywall_channel_arm_recv(pair.client, NULL, NULL));
    NULL_ARGUMENT(partywall_channel_wait_recv(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_wake(NULL, NULL));
    NULL_ARGUMENT(partywall_loop_new_once(NULL, NULL));
    NULL_ARGUMENT(partywall_listener_address(pair.listener, NULL, 8, &len, NULL));
    NULL_ARGUMENT(partywall_listener_address(pair.listener, buffer, 8, NULL, NULL));

    NULL_ARGUMENT(partywall_channel_send(NULL, "x", 1, 0, NULL));
    NULL_ARGUMENT(partywall_channel_send(pair.client, NULL, 1, 0, NULL));
    NULL_ARGUMENT(partywall_channel_reserve(NULL, 1, &data, &reservation, 0, NULL));
    NULL_ARGUMENT(partywall_channel_reserve(pair.client, 1, NULL, &reservation, 0, NULL));
    NULL_ARGUMENT(partywall_channel_reserve(pair.client, 1, &data, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_commit(NULL, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_commit(pair.client, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_flush(NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_close_write(NULL, NULL));
    NULL_ARGUMENT(partywall_channel_recv_view(NULL, &view, &len, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv_view(pair.client, NULL, &len, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv_view(pair.client, &view, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv_copy(NULL, buffer, 8, &len, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv_copy(pair.client, NULL, 8, &len, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv_copy(pair.client, buffer, 8, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv(NULL, &message, 0, NULL));
    NULL_ARGUMENT(partywall_channel_recv(pair.client, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_channel_keep(NULL, &message, NULL));
    NULL_ARGUMENT(partywall_channel_keep(pair.client, NULL, NULL));

    NULL_ARGUMENT(partywall_channel_peer(NULL, &peer, sizeof peer));
    NULL_ARGUMENT(partywall_channel_peer(pair.client, NULL, sizeof peer));
    NULL_ARGUMENT(partywall_channel_peer_text(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_channel_peer_text(pair.client, NULL, 8, &len, NULL));
    NULL_ARGUMENT(partywall_channel_peer_text(pair.client, buffer, 8, NULL, NULL));
    NULL_ARGUMENT(partywall_channel_transport(NULL, &number, &reason));
    NULL_ARGUMENT(partywall_channel_transport(pair.client, NULL, &reason));
    NULL_ARGUMENT(partywall_channel_transport(pair.client, &number, NULL));
    NULL_ARGUMENT(partywall_channel_transport_text(NULL, buffer, 8, &len, NULL));
    NULL_ARGUMENT(partywall_channel_transport_text(pair.client, NULL, 8, &len, NULL));
    NULL_ARGUMENT(partywall_channel_transport_text(pair.client, buffer, 8, NULL, NULL));
    NULL_ARGUMENT(partywall_channel_sender_stats(NULL, &sent, sizeof sent));
    NULL_ARGUMENT(partywall_channel_sender_stats(pair.client, NULL, sizeof sent));
    NULL_ARGUMENT(partywall_channel_receiver_stats(NULL, &received, sizeof received));
    NULL_ARGUMENT(partywall_channel_receiver_stats(pair.client, NULL, sizeof received));

    NULL_ARGUMENT(partywall_message_data(NULL, &view, &len));
    NULL_ARGUMENT(partywall_message_is_zero_copy(NULL, &number));
    NULL_ARGUMENT(partywall_reservation_data(NULL, &data, &len));
    NULL_ARGUMENT(partywall_reservation_truncate(NULL, 1));

    NULL_ARGUMENT(partywall_config_admit_user(NULL, 0));
    NULL_ARGUMENT(partywall_config_admit_group(NULL, 0));
    sessions(address, loop);

    NULL_ARGUMENT(partywall_loop_new(NULL, NULL));
    NULL_ARGUMENT(partywall_loop_fd(NULL, &number));
    NULL_ARGUMENT(partywall_loop_fd(loop, NULL));
    NULL_ARGUMENT(partywall_loop_add_channel(NULL, pair.client, 1, NULL));
    NULL_ARGUMENT(partywall_loop_add_channel(loop, NULL, 1, NULL));
    NULL_ARGUMENT(partywall_loop_add_listener(NULL, pair.listener, 1, NULL));
    NULL_ARGUMENT(partywall_loop_add_listener(loop, NULL, 1, NULL));
    NULL_ARGUMENT(partywall_loop_wait(NULL, &event, 1, &len, 0, NULL));
    NULL_ARGUMENT(partywall_loop_wait(loop, NULL, 1, &len, 0, NULL));
    NULL_ARGUMENT(partywall_loop_wait(loop, &event, 1, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_loop_wait(loop, &event, 0, &len, 0, NULL));
    NULL_ARGUMENT(partywall_loop_poll_awake(NULL, &event, 1, &len, NULL));
    NULL_ARGUMENT(partywall_loop_poll_awake(loop, NULL, 1, &len, NULL));
    NULL_ARGUMENT(partywall_loop_poll_awake(loop, &event, 1, NULL, NULL));
    NULL_ARGUMENT(partywall_loop_poll_awake(loop, &event, 0, &len, NULL));
    NULL_ARGUMENT(partywall_loop_next_timer(NULL, &timer));
    NULL_ARGUMENT(partywall_loop_next_timer(loop, NULL));

    OK(partywall_config_free(NULL));
    OK(partywall_listener_free(NULL));
    OK(partywall_channel_free(NULL));
    OK(partywall_message_free(NULL));
    OK(partywall_reservation_abort(NULL));
    OK(partywall_loop_free(NULL));
    OK(partywall_error_free(NULL));
    CHECK(partywall_error_code(NULL) == 0 && partywall_error_errno(NULL) == 0);
    CHECK(strcmp(partywall_error_message(NULL), "") == 0);
}

/*
 * Each function of messages and reservations refuses null as the address of a result, and the
 * handle of a freed object.
 */
static void parts(struct pair pair) {
    partywall_message *message = NULL;
    partywall_reservation *reservation = NULL;
    const void *view = NULL;
    void *data = NULL;
    size_t len = 0;
    OK(partywall_channel_send(pair.client, "x", 1, 0, NULL));
    OK(partywall_channel_recv(pair.server, &message, TIMEOUT_NS, NULL));
    NULL_ARGUMENT(partywall_message_data(message, NULL, &len));
    NULL_ARGUMENT(partywall_message_data(message, &view, NULL));
    NULL_ARGUMENT(partywall_message_is_zero_copy(message, NULL));
    OK(partywall_message_free(message));
    WRONG_HANDLE(partywall_message_free(message));
    WRONG_HANDLE(partywall_message_data(message, &view, &len));
    OK(partywall_channel_reserve(pair.client, 1, &data, &reservation, 0, NULL));
    NULL_ARGUMENT(partywall_reservation_data(reservation, NULL, &len));
    NULL_ARGUMENT(partywall_reservation_data(reservation, &data, NULL));
    OK(partywall_reservation_abort(reservation));
    WRONG_HANDLE(partywall_reservation_abort(reservation));
    WRONG_HANDLE(partywall_reservation_truncate(reservation, 0));
}

/*
 * Functions refuse handles of another type, numbers that were never a handle, and handles of freed
 * objects.
 */
static void handles(const char *address, struct pair pair, partywall_config *config,
                    partywall_loop *loop) {
    int local = 0;
    size_t len = 0;
    const void *view = NULL;
    partywall_event event;
    partywall_error *error = NULL;
    partywall_channel *channel = NULL;
    WRONG_HANDLE(partywall_channel_send((partywall_channel *)config, "x", 1, 0, NULL));
    WRONG_HANDLE(partywall_channel_free((partywall_channel *)pair.listener));
    WRONG_HANDLE(partywall_listener_free((partywall_listener *)pair.client));
    WRONG_HANDLE(partywall_config_free((partywall_config *)loop));
    WRONG_HANDLE(partywall_loop_free((partywall_loop *)config));
    WRONG_HANDLE(partywall_message_free((partywall_message *)pair.client));
    WRONG_HANDLE(partywall_reservation_abort((partywall_reservation *)pair.client));
    WRONG_HANDLE(partywall_error_free((partywall_error *)pair.client));
    WRONG_HANDLE(partywall_channel_free((partywall_channel *)(void *)&local));
    WRONG_HANDLE(partywall_channel_recv_view((partywall_channel *)(void *)&local, &view, &len, 0, NULL));
    WRONG_HANDLE(partywall_loop_wait((partywall_loop *)(void *)&local, &event, 1, &len, 0, NULL));
    WRONG_HANDLE(partywall_connect(address, (partywall_config *)loop, &channel, NULL));
    WRONG_HANDLE(partywall_loop_add_channel(loop, (partywall_channel *)config, 1, &error));
    CHECK(strstr(partywall_error_message(error), "no partywall_channel") != NULL);
    OK(partywall_error_free(error));
    WRONG_HANDLE(partywall_error_free(error));
    CHECK(partywall_error_code(error) == 0);
}

static void values(const char *address, partywall_config *config) {
    partywall_error *error = NULL;
    partywall_channel *channel = NULL;
    STATUS(partywall_config_set(config, "no key", 1, &error), PARTYWALL_ARGUMENT);
    CHECK(strstr(partywall_error_message(error), "no key") != NULL);
    CHECK(strstr(partywall_error_message(error), "partywall.h") != NULL);
    OK(partywall_error_free(error));
    STATUS(partywall_config_set(config, "transport", 99, NULL), PARTYWALL_SETTING);
    STATUS(partywall_config_set(config, "streams_max", UINT64_MAX, NULL), PARTYWALL_SETTING);
    STATUS(partywall_config_set(config, "\xff", 1, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_config_set(config, "ring_bytes", 5, NULL));
    STATUS(partywall_connect(address, config, &channel, NULL), PARTYWALL_SETTING);
    CHECK(channel == NULL);
}

/*
 * A panic in the library becomes a status. The direction of the channel in which it happened is
 * unusable, and the other goes on.
 */
static void panics(struct pair pair) {
    const void *view = NULL;
    size_t len = 0;
    STATUS(partywall_test_panic(pair.client), PARTYWALL_PANIC);
    STATUS(partywall_channel_send(pair.client, "x", 1, 0, NULL), PARTYWALL_PANIC);
    OK(partywall_channel_send(pair.server, "y", 1, 0, NULL));
    OK(partywall_channel_recv_view(pair.client, &view, &len, TIMEOUT_NS, NULL));
    CHECK(len == 1);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    partywall_config *config = NULL;
    partywall_loop *loop = NULL;
    struct pair pair = make_pair(address, NULL);
    OK(partywall_config_new(&config, NULL));
    OK(partywall_loop_new(&loop, NULL));
    nulls(address, pair, config, loop);
    places_of_sessions(argv[1]);
    sizes(pair, loop);
    parts(pair);
    handles(address, pair, config, loop);
    values(address, config);
    panics(pair);
    free_pair(pair);
    WRONG_HANDLE(partywall_channel_free(pair.client));
    WRONG_HANDLE(partywall_channel_send(pair.client, "x", 1, 0, NULL));
    WRONG_HANDLE(partywall_listener_free(pair.listener));
    OK(partywall_config_free(config));
    WRONG_HANDLE(partywall_config_free(config));
    OK(partywall_loop_free(loop));
    WRONG_HANDLE(partywall_loop_free(loop));
    return 0;
}
