/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls over a stream: answers in any order, failures, cancelling, deadlines, ends, and misuse. */
#include "check.h"

#define THREADS 4
#define CALLS 200

struct ends {
    partywall_session_listener *listener;
    partywall_session *here, *there;
    partywall_calls_client *client;
    partywall_calls_server *server;
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

static struct ends make_ends(const char *address, partywall_config *config) {
    struct ends ends;
    struct opening it = {address, NULL};
    pthread_t thread;
    partywall_stream *here = NULL, *there = NULL;
    OK(partywall_session_listener_bind(address, NULL, NULL, 0, &ends.listener, NULL));
    CHECK(pthread_create(&thread, NULL, connect_session, &it) == 0);
    OK(partywall_session_listener_accept(ends.listener, 0, &ends.there, TIMEOUT_NS, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    ends.here = it.session;
    OK(partywall_session_open(ends.here, "calls", 5, 0, &here, TIMEOUT_NS, NULL));
    OK(partywall_session_accept(ends.there, 0, &there, TIMEOUT_NS, NULL));
    OK(partywall_calls_client_new(here, config, &ends.client, NULL));
    OK(partywall_calls_server_new(there, config, &ends.server, NULL));
    STATUS(partywall_stream_free(here), PARTYWALL_HANDLE);
    STATUS(partywall_stream_free(there), PARTYWALL_HANDLE);
    return ends;
}

static void free_ends(struct ends ends) {
    OK(partywall_session_free(ends.here));
    OK(partywall_session_free(ends.there));
    OK(partywall_session_listener_free(ends.listener));
}

/*
 * A thread of the server: answers each call with its payload and one more byte, until the client
 * has finished.
 */
static void *serve(void *server) {
    static char answer[100001];
    partywall_request *request = NULL;
    int32_t status;
    while ((status = partywall_calls_server_recv(server, &request, TIMEOUT_NS, NULL)) == 0) {
        const void *data = NULL;
        size_t len = 0;
        int32_t is_one_way = -1;
        int64_t left = 0;
        OK(partywall_request_data(request, &data, &len));
        OK(partywall_request_is_one_way(request, &is_one_way));
        OK(partywall_request_time_left(request, &left));
        CHECK(is_one_way == 1 ? left == -1 : left > 0);
        if (len == 4 && memcmp(data, "fail", 4) == 0) {
            OK(partywall_request_fail(request, 7, "why", 3, TIMEOUT_NS, NULL));
        } else if (len == 5 && memcmp(data, "code?", 5) == 0) {
            STATUS(partywall_request_fail(request, 0xffffff00, "", 0, 0, NULL), PARTYWALL_ARGUMENT);
        } else if (len == 5 && memcmp(data, "why??", 5) == 0) {
            STATUS(partywall_request_fail(request, 7, NULL, 3, 0, NULL), PARTYWALL_ARGUMENT);
        } else if (len == 5 && memcmp(data, "NULL?", 5) == 0) {
            STATUS(partywall_request_answer(request, NULL, 1, 0, NULL), PARTYWALL_ARGUMENT);
        } else if (len == 4 && memcmp(data, "drop", 4) == 0) {
            OK(partywall_request_free(request));
        } else {
            memcpy(answer, data, len);
            answer[len] = '!';
            OK(partywall_request_answer(request, answer, len + 1, TIMEOUT_NS, NULL));
        }
        STATUS(partywall_request_free(request), PARTYWALL_HANDLE);
    }
    CHECK(status == PARTYWALL_FINISHED);
    return NULL;
}

static void *make_calls(void *client) {
    static const size_t sizes[] = {1, 48, 5000, 100000};
    static char big[100000];
    for (size_t i = 0; i < CALLS; i++) {
        partywall_message *answer = NULL;
        const void *data = NULL;
        size_t size = sizes[i % 4], len = 0;
        OK(partywall_calls_client_call(client, big, size, &answer, TIMEOUT_NS, NULL));
        OK(partywall_message_data(answer, &data, &len));
        CHECK(len == size + 1 && ((const char *)data)[size] == '!');
        OK(partywall_message_free(answer));
    }
    return NULL;
}

static void answered(const char *address) {
    struct ends ends = make_ends(address, NULL);
    pthread_t server, clients[THREADS];
    partywall_message *answer = NULL;
    partywall_error *error = NULL;
    const void *data = NULL;
    size_t len = 0;
    CHECK(pthread_create(&server, NULL, serve, ends.server) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&clients[i], NULL, make_calls, ends.client) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(clients[i], NULL) == 0);
    }
    STATUS(partywall_calls_client_call(ends.client, "fail", 4, &answer, TIMEOUT_NS, &error),
           PARTYWALL_CALL_FAILED);
    CHECK(partywall_error_application_code(error) == 7);
    OK(partywall_error_free(error));
    OK(partywall_message_data(answer, &data, &len));
    CHECK(len == 3 && memcmp(data, "why", 3) == 0);
    OK(partywall_message_free(answer));
    /*
     * A server that passes a refused argument to an answering function frees the request all the
     * same, so the client's call ends.
     */
    static const char *const aborted[] = {"drop", "code?", "why??", "NULL?"};
    for (size_t i = 0; i < 4; i++) {
        const char *call = aborted[i];
        STATUS(partywall_calls_client_call(ends.client, call, strlen(call), &answer, TIMEOUT_NS,
                                           NULL), PARTYWALL_CALL_ABORTED);
    }
    OK(partywall_calls_client_call_one_way(ends.client, "one way", 7, TIMEOUT_NS, NULL));

    /* With two calls in flight, the client waits for the answer of the second call first. */
    partywall_call *first = NULL, *second = NULL;
    OK(partywall_calls_client_begin(ends.client, "1", 1, &first, TIMEOUT_NS, NULL));
    OK(partywall_calls_client_begin(ends.client, "22", 2, &second, TIMEOUT_NS, NULL));
    OK(partywall_call_wait(second, &answer, TIMEOUT_NS, NULL));
    OK(partywall_message_data(answer, &data, &len));
    CHECK(len == 3);
    OK(partywall_message_free(answer));
    STATUS(partywall_call_wait(second, &answer, TIMEOUT_NS, NULL), PARTYWALL_ARGUMENT);
    OK(partywall_call_wait(first, &answer, TIMEOUT_NS, NULL));
    OK(partywall_message_free(answer));
    OK(partywall_call_free(first));
    OK(partywall_call_free(second));
    OK(partywall_calls_client_free(ends.client));
    CHECK(pthread_join(server, NULL) == 0);
    OK(partywall_calls_server_free(ends.server));
    free_ends(ends);
}

/*
 * A call that gets no answer ends with a status, whether the client frees the call, its timeout
 * passes or its session ends.
 */
static void given_up(const char *address) {
    partywall_config *config = NULL;
    partywall_call *call = NULL, *next = NULL;
    partywall_request *request = NULL;
    partywall_message *answer = NULL;
    partywall_error *error = NULL;
    int32_t is_cancelled = 0, reason = 0;
    OK(partywall_config_new(&config, NULL));
    OK(partywall_config_set(config, "in_flight_max", 1, NULL));
    struct ends ends = make_ends(address, config);
    STATUS(partywall_calls_server_recv(ends.server, &request, 0, NULL), PARTYWALL_EMPTY);
    STATUS(partywall_calls_server_recv(ends.server, &request, 1000, NULL), PARTYWALL_TIMED_OUT);
    OK(partywall_calls_client_begin(ends.client, "x", 1, &call, TIMEOUT_NS, NULL));
    STATUS(partywall_calls_client_begin(ends.client, "y", 1, &next, 1000, NULL),
           PARTYWALL_TIMED_OUT);
    STATUS(partywall_call_wait(call, &answer, 1000, NULL), PARTYWALL_TIMED_OUT);
    OK(partywall_calls_server_recv(ends.server, &request, TIMEOUT_NS, NULL));
    OK(partywall_request_is_cancelled(request, &is_cancelled));
    CHECK(is_cancelled == 0);
    OK(partywall_call_free(call));
    STATUS(partywall_call_free(call), PARTYWALL_HANDLE);
    while (is_cancelled == 0) {
        OK(partywall_request_is_cancelled(request, &is_cancelled));
    }
    OK(partywall_request_answer(request, "nobody", 6, TIMEOUT_NS, NULL));
    STATUS(partywall_calls_client_call(ends.client, "z", 1, &answer, 1000000, NULL),
           PARTYWALL_TIMED_OUT);
    OK(partywall_session_close(ends.there, 5, "over", NULL));
    /*
     * The client waits until its session has received the close of its peer. A call before that
     * could fail with another status.
     */
    OK(partywall_session_wait_closed(ends.here, &reason, NULL, TIMEOUT_NS, NULL));
    CHECK(reason == 411);
    STATUS(partywall_calls_client_call(ends.client, "z", 1, &answer, TIMEOUT_NS, &error), 411);
    CHECK(answer == NULL && partywall_error_application_code(error) == 5);
    OK(partywall_error_free(error));
    OK(partywall_calls_client_free(ends.client));
    OK(partywall_calls_server_free(ends.server));
    free_ends(ends);
    OK(partywall_config_free(config));
}

static void misuse(const char *address) {
    partywall_calls_client *client = NULL;
    partywall_calls_server *server = NULL;
    partywall_call *call = NULL;
    partywall_request *request = NULL;
    partywall_message *answer = NULL;
    const void *data = NULL;
    size_t len = 0;
    int64_t left = 0;
    int32_t number = 0;
    struct ends ends = make_ends(address, NULL);
#define NULL_ARGUMENT(call_) STATUS(call_, PARTYWALL_ARGUMENT)
    NULL_ARGUMENT(partywall_calls_client_new(NULL, NULL, &client, NULL));
    NULL_ARGUMENT(partywall_calls_client_new(NULL, NULL, NULL, NULL));
    NULL_ARGUMENT(partywall_calls_client_call(NULL, "x", 1, &answer, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_call(ends.client, NULL, 1, &answer, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_call(ends.client, "x", 1, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_call_one_way(NULL, "x", 1, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_begin(NULL, "x", 1, &call, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_begin(ends.client, "x", 1, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_call_wait(NULL, &answer, 0, NULL));
    NULL_ARGUMENT(partywall_calls_server_new(NULL, NULL, &server, NULL));
    NULL_ARGUMENT(partywall_calls_server_recv(NULL, &request, 0, NULL));
    NULL_ARGUMENT(partywall_calls_server_recv(ends.server, NULL, 0, NULL));
    NULL_ARGUMENT(partywall_request_data(NULL, &data, &len));
    NULL_ARGUMENT(partywall_request_time_left(NULL, &left));
    NULL_ARGUMENT(partywall_request_is_one_way(NULL, &number));
    NULL_ARGUMENT(partywall_request_is_cancelled(NULL, &number));
    NULL_ARGUMENT(partywall_request_answer(NULL, "x", 1, 0, NULL));
    NULL_ARGUMENT(partywall_request_fail(NULL, 1, "x", 1, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_call_one_way(ends.client, NULL, 1, 0, NULL));
    NULL_ARGUMENT(partywall_calls_client_begin(ends.client, NULL, 1, &call, 0, NULL));
    OK(partywall_calls_client_begin(ends.client, "x", 1, &call, TIMEOUT_NS, NULL));
    NULL_ARGUMENT(partywall_call_wait(call, NULL, 0, NULL));
    OK(partywall_calls_server_recv(ends.server, &request, TIMEOUT_NS, NULL));
    NULL_ARGUMENT(partywall_request_data(request, NULL, &len));
    NULL_ARGUMENT(partywall_request_data(request, &data, NULL));
    NULL_ARGUMENT(partywall_request_time_left(request, NULL));
    NULL_ARGUMENT(partywall_request_is_one_way(request, NULL));
    NULL_ARGUMENT(partywall_request_is_cancelled(request, NULL));
    OK(partywall_request_free(request));
    OK(partywall_call_free(call));
    OK(partywall_calls_client_free(NULL));
    OK(partywall_calls_server_free(NULL));
    OK(partywall_call_free(NULL));
    OK(partywall_request_free(NULL));
    STATUS(partywall_calls_client_free((partywall_calls_client *)ends.server), PARTYWALL_HANDLE);
    STATUS(partywall_request_free((partywall_request *)ends.client), PARTYWALL_HANDLE);
    OK(partywall_calls_client_free(ends.client));
    STATUS(partywall_calls_client_free(ends.client), PARTYWALL_HANDLE);
    OK(partywall_calls_server_free(ends.server));
    STATUS(partywall_calls_server_free(ends.server), PARTYWALL_HANDLE);
    free_ends(ends);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    answered(address);
    given_up(address);
    misuse(address);
    return 0;
}
