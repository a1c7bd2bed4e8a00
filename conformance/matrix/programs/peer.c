/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One end of a pair of programs in the matrix of languages, written in C. The programs of all
 * languages have the same command line and output, which conformance/matrix/README.md describes.
 */
#include <inttypes.h>
#include <partywall.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER (UINT64_C(1) << 63) /* the bit of a seed that makes a message an answer */
#define STEP UINT64_C(0x9e3779b97f4a7c15)
#define SLAB_BYTES (32 << 20) /* of long messages that a link keeps */
#define IN_FLIGHT 8           /* messages of a chain that are under way */
#define MESSAGE_MAX 65536     /* the longest message that the server of errors receives */
#define LIMIT_NS INT64_C(60000000000)
#define STREAMS_MAX 16
#define SIZES_MAX 64
/* Characters that lengthen each printed line: a thousand lines fill the pipe to the harness. */
#define PADDING "------------------------------------------------"

static void fail(const char *what) {
    printf("failed %s\n", what);
    exit(1);
}

/* Unless the call `what` has succeeded, prints its error and ends the process. */
static void check(int32_t status, partywall_error *error, const char *what) {
    if (status != PARTYWALL_OK) {
        printf("failed %s: %d %s\n", what, (int)status,
               error == NULL ? "" : partywall_error_message(error));
        exit(1);
    }
}

/* Memory for one message, which grows to the length of the longest message. */
struct buffer {
    unsigned char *data;
    size_t capacity;
};

static void grow(struct buffer *buffer, size_t size) {
    size_t whole = (size + 7) / 8 * 8 + 16;
    if (whole > buffer->capacity) {
        free(buffer->data);
        buffer->data = malloc(whole);
        buffer->capacity = whole;
        if (buffer->data == NULL) {
            fail("no memory");
        }
    }
}

static uint64_t mix(uint64_t word) {
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

/*
 * Fills `size` bytes, word by word, with the pattern of a seed, as crates/testkit/src/pattern.rs
 * defines it.
 */
static void fill(unsigned char *bytes, size_t size, uint64_t seed) {
    uint64_t word = mix(seed);
    for (size_t at = 0; at < size; at += 8, word += STEP) {
        for (int place = 0; place < 8; place++) {
            bytes[at + (size_t)place] = (unsigned char)(word >> (8 * place));
        }
    }
}

static const unsigned char *pattern(struct buffer *buffer, size_t size, uint64_t seed) {
    grow(buffer, size);
    fill(buffer->data, size, seed);
    return buffer->data;
}

/*
 * Returns the payload of message `number` with `size` bytes, as crates/testkit/src/pattern.rs
 * defines it.
 */
static const unsigned char *payload(struct buffer *buffer, uint64_t number, size_t size) {
    grow(buffer, size);
    for (int place = 0; place < 8; place++) {
        buffer->data[place] = (unsigned char)(number >> (8 * place));
    }
    fill(buffer->data + 8, size - 8, number);
    return buffer->data;
}

/* The number of messages that this end has received, and the sum of their bytes. */
struct counters {
    uint64_t messages, bytes;
    struct buffer scratch;
};

static void check_message(struct counters *counters, const void *data, size_t size, uint64_t seed) {
    if (size > 0 && memcmp(data, pattern(&counters->scratch, size, seed), size) != 0) {
        fail("a message is wrong");
    }
    counters->messages++;
    counters->bytes += size;
}

static void check_answer(struct counters *counters, const void *data, size_t size, uint64_t seed,
                         size_t wanted) {
    if (size != wanted) {
        fail("an answer has another size");
    }
    check_message(counters, data, size, seed | ANSWER);
}

static void report(const char *what, const struct counters *counters) {
    printf("%s %" PRIu64 " %" PRIu64 "\n", what, counters->messages, counters->bytes);
}

static uint64_t policy(const char *transport) {
    if (strcmp(transport, "shared") == 0) {
        return PARTYWALL_TRANSPORT_SHARED_MEMORY;
    }
    return strcmp(transport, "unix") == 0 ? PARTYWALL_TRANSPORT_SOCKET : PARTYWALL_TRANSPORT_AUTO;
}

static partywall_config *config_for(const char *transport) {
    partywall_config *config = NULL;
    check(partywall_config_new(&config, NULL), NULL, "config");
    check(partywall_config_set(config, "transport", policy(transport), NULL), NULL, "transport");
    return config;
}

static void serve_channels(const char *transport, const char *address) {
    partywall_error *error = NULL;
    partywall_listener *listener = NULL;
    struct buffer answer = {NULL, 0};
    check(partywall_listener_bind(address, config_for(transport), &listener, &error), error, "bind");
    puts("ready");
    for (;;) {
        partywall_channel *channel = NULL;
        struct counters counters = {0, 0, {NULL, 0}};
        const void *data = NULL;
        size_t size = 0;
        int32_t status;
        check(partywall_listener_accept(listener, &channel, -1, &error), error, "accept");
        while ((status = partywall_channel_recv_view(channel, &data, &size, -1, &error)) ==
               PARTYWALL_OK) {
            uint64_t seed = counters.messages;
            check_message(&counters, data, size, seed);
            pattern(&answer, size, seed | ANSWER);
            check(partywall_channel_send(channel, answer.data, size, -1, &error), error, "send");
            check(partywall_channel_flush(channel, -1, &error), error, "flush");
        }
        check(status == PARTYWALL_FINISHED ? PARTYWALL_OK : status, error, "recv");
        partywall_channel_free(channel);
        free(counters.scratch.data);
        report("served", &counters);
    }
}

static void run_channel(const char *transport, const char *address, const size_t *sizes,
                        size_t count) {
    partywall_error *error = NULL;
    partywall_channel *channel = NULL;
    struct counters counters = {0, 0, {NULL, 0}};
    struct buffer message = {NULL, 0};
    check(partywall_connect(address, config_for(transport), &channel, &error), error, "connect");
    for (size_t number = 0; number < count; number++) {
        const void *data = NULL;
        size_t size = 0;
        pattern(&message, sizes[number], number);
        check(partywall_channel_send(channel, message.data, sizes[number], -1, &error), error,
              "send");
        check(partywall_channel_flush(channel, -1, &error), error, "flush");
        check(partywall_channel_recv_view(channel, &data, &size, -1, &error), error, "recv");
        check_answer(&counters, data, size, number, sizes[number]);
    }
    partywall_channel_free(channel);
    report("done", &counters);
}

/* The arguments of a thread that answers the messages of one stream. */
struct served {
    partywall_stream *stream;
    pthread_t thread;
    struct counters counters;
};

static void *serve_stream(void *argument) {
    struct served *it = argument;
    partywall_error *error = NULL;
    struct buffer answer = {NULL, 0};
    const void *data = NULL;
    size_t size = 0;
    int32_t status;
    check(partywall_stream_metadata(it->stream, &data, &size), NULL, "metadata");
    if (size != 1) {
        fail("a stream without metadata");
    }
    uint64_t first = (uint64_t)*(const unsigned char *)data << 32;
    while ((status = partywall_stream_recv_view(it->stream, &data, &size, -1, &error)) ==
           PARTYWALL_OK) {
        uint64_t seed = first | it->counters.messages;
        check_message(&it->counters, data, size, seed);
        pattern(&answer, size, seed | ANSWER);
        check(partywall_stream_send(it->stream, answer.data, size, -1, &error), error, "send");
    }
    check(status == PARTYWALL_FINISHED ? PARTYWALL_OK : status, error, "recv");
    check(partywall_stream_finish(it->stream, &error), error, "finish");
    partywall_stream_free(it->stream);
    free(it->counters.scratch.data);
    free(answer.data);
    return NULL;
}

static void serve_session(partywall_session *session) {
    static struct served streams[STREAMS_MAX];
    struct counters total = {0, 0, {NULL, 0}};
    partywall_error *error = NULL;
    size_t count = 0;
    int32_t status = PARTYWALL_OK;
    memset(streams, 0, sizeof streams);
    for (; count < STREAMS_MAX; count++) {
        struct served *it = &streams[count];
        status = partywall_session_accept(session, 0, &it->stream, -1, &error);
        if (status != PARTYWALL_OK) {
            break;
        }
        if (pthread_create(&it->thread, NULL, serve_stream, it) != 0) {
            fail("no thread");
        }
    }
    check(status == PARTYWALL_FINISHED ? PARTYWALL_OK : status, error, "accept");
    for (size_t index = 0; index < count; index++) {
        pthread_join(streams[index].thread, NULL);
        total.messages += streams[index].counters.messages;
        total.bytes += streams[index].counters.bytes;
    }
    partywall_session_free(session);
    report("served", &total);
}

static void serve_sessions(const char *transport, const char *address) {
    partywall_error *error = NULL;
    partywall_session_listener *listener = NULL;
    check(partywall_session_listener_bind(address, config_for(transport), NULL, 0, &listener,
                                          &error),
          error, "bind");
    puts("ready");
    for (;;) {
        partywall_session *session = NULL;
        check(partywall_session_listener_accept(listener, 0, &session, -1, &error), error,
              "accept");
        serve_session(session);
    }
}

/*
 * Sends messages of the given sizes on two streams, alternating, and checks the answers. Each
 * stream was opened with its own number, 0 or 1, as its one byte of metadata.
 */
static void run_session(const char *transport, const char *address, const size_t *sizes,
                        size_t count) {
    partywall_error *error = NULL;
    partywall_session *session = NULL;
    partywall_stream *streams[2] = {NULL, NULL};
    struct counters counters = {0, 0, {NULL, 0}};
    struct buffer message = {NULL, 0};
    const void *data = NULL;
    size_t size = 0;
    check(partywall_session_connect(address, config_for(transport), NULL, 0, &session, &error),
          error, "connect");
    for (unsigned char first = 0; first < 2; first++) {
        check(partywall_session_open(session, &first, 1, 0, &streams[first], -1, &error), error,
              "open");
    }
    for (size_t number = 0; number < count; number++) {
        for (uint64_t first = 0; first < 2; first++) {
            pattern(&message, sizes[number], first << 32 | number);
            check(partywall_stream_send(streams[first], message.data, sizes[number], -1, &error),
                  error, "send");
        }
        for (uint64_t first = 0; first < 2; first++) {
            check(partywall_stream_recv_view(streams[first], &data, &size, -1, &error), error,
                  "recv");
            check_answer(&counters, data, size, first << 32 | number, sizes[number]);
        }
    }
    for (int index = 0; index < 2; index++) {
        check(partywall_stream_finish(streams[index], &error), error, "finish");
        if (partywall_stream_recv_view(streams[index], &data, &size, -1, &error) !=
            PARTYWALL_FINISHED) {
            fail("no end of a stream");
        }
        partywall_stream_free(streams[index]);
    }
    check(partywall_session_close(session, 0, "", &error), error, "close");
    check(partywall_session_wait_finished(session, LIMIT_NS, &error), error, "wait");
    report("done", &counters);
}

static partywall_link_config *link_config_for(const char *transport) {
    partywall_link_config *config = NULL;
    check(partywall_link_config_new(&config, NULL), NULL, "config");
    check(partywall_link_config_set(config, "transport", policy(transport), NULL), NULL, "setting");
    check(partywall_link_config_set(config, "slab_bytes", SLAB_BYTES, NULL), NULL, "setting");
    check(partywall_link_config_set(config, "allow_anonymous_tcp", strcmp(transport, "tcp") == 0,
                                    NULL),
          NULL, "setting");
    return config;
}

static partywall_link_server *bind_links(const char *transport, const char *address,
                                         const char *directory) {
    partywall_error *error = NULL;
    partywall_link_server *server = NULL;
    check(partywall_link_server_bind(address, directory, "bob", link_config_for(transport), &server,
                                     &error),
          error, "bind");
    puts("ready");
    return server;
}

static partywall_link *accept_link(partywall_link_server *server) {
    partywall_error *error = NULL;
    partywall_link *link = NULL;
    check(partywall_link_server_accept(server, &link, -1, &error), error, "accept");
    return link;
}

static partywall_link *connect_link(const char *transport, const char *address,
                                    const char *directory, const char *name) {
    partywall_error *error = NULL;
    partywall_link_client *client = NULL;
    partywall_link *link = NULL;
    check(partywall_link_client_new(directory, "alice", link_config_for(transport), &client,
                                    &error),
          error, "client");
    check(partywall_link_connect(client, address, "bob", name, &link, &error), error, "connect");
    return link;
}

static void close_link(partywall_link *link) {
    partywall_error *error = NULL;
    check(partywall_link_close(link, LIMIT_NS, &error), error, "close");
}

/* Receives the next message of a link. Returns 0 once the peer has ended its direction. */
static int recv_of_link(partywall_link *link, partywall_link_message **message, const void **data,
                        size_t *size) {
    partywall_error *error = NULL;
    int32_t status = partywall_link_recv(link, message, -1, &error);
    if (status == PARTYWALL_FINISHED) {
        return 0;
    }
    check(status, error, "recv");
    check(partywall_link_message_data(*message, data, size), NULL, "data");
    return 1;
}

static void serve_links(const char *transport, const char *address, const char *directory) {
    partywall_link_server *server = bind_links(transport, address, directory);
    struct buffer answer = {NULL, 0};
    for (;;) {
        partywall_error *error = NULL;
        partywall_link *link = accept_link(server);
        partywall_link_message *message = NULL;
        struct counters counters = {0, 0, {NULL, 0}};
        const void *data = NULL;
        size_t size = 0;
        while (recv_of_link(link, &message, &data, &size)) {
            uint64_t seed = counters.messages;
            check_message(&counters, data, size, seed);
            pattern(&answer, size, seed | ANSWER);
            check(partywall_link_message_reply(message, answer.data, size, -1, &error), error,
                  "reply");
        }
        close_link(link);
        free(counters.scratch.data);
        report("served", &counters);
    }
}

static void run_link(partywall_link *link, const size_t *sizes, size_t count) {
    partywall_error *error = NULL;
    struct counters counters = {0, 0, {NULL, 0}};
    struct buffer buffer = {NULL, 0};
    for (size_t number = 0; number < count; number++) {
        partywall_link_message *message = NULL;
        const void *data = NULL;
        size_t size = 0;
        pattern(&buffer, sizes[number], number);
        check(partywall_link_send(link, buffer.data, sizes[number], -1, &error), error, "send");
        if (!recv_of_link(link, &message, &data, &size)) {
            fail("the end instead of an answer");
        }
        check_answer(&counters, data, size, number, sizes[number]);
        check(partywall_link_message_ack(message, &error), error, "ack");
    }
    close_link(link);
    report("done", &counters);
}

/* The length in bytes of message `number` in the test that kills an end of the link. */
static size_t chain_size(uint64_t number) {
    return number % 64 == 63 ? 70000 : 8 + (size_t)(number % 50);
}

/*
 * Receives and checks the next message in the test that kills an end of the link. Returns 0 once
 * the peer has ended its direction. Prints the line "got" before the caller acknowledges or answers
 * the message, so that the harness learns of every receipt.
 */
static int next_of_chain(partywall_link *link, uint64_t mark, partywall_link_message **message,
                         uint64_t *number) {
    static struct buffer expected;
    const void *data = NULL;
    size_t size = 0;
    uint64_t word = 0;
    uint32_t attempt = 0;
    if (!recv_of_link(link, message, &data, &size)) {
        return 0;
    }
    for (int place = 0; place < 8 && size >= 8; place++) {
        word |= (uint64_t)((const unsigned char *)data)[place] << (8 * place);
    }
    *number = word & ~ANSWER;
    if ((word & ANSWER) != mark || size != chain_size(*number) ||
        memcmp(data, payload(&expected, word, size), size) != 0) {
        fail("a message of a chain is wrong");
    }
    check(partywall_link_message_attempt(*message, &attempt), NULL, "attempt");
    printf("got %" PRIu64 " %" PRIu32 " " PADDING "\n", *number, attempt);
    return 1;
}

static void serve_chain(const char *transport, const char *address, const char *directory) {
    partywall_error *error = NULL;
    partywall_link *link = accept_link(bind_links(transport, address, directory));
    partywall_link_message *message = NULL;
    struct buffer answer = {NULL, 0};
    uint64_t number = 0;
    while (next_of_chain(link, 0, &message, &number)) {
        payload(&answer, number | ANSWER, chain_size(number));
        check(partywall_link_message_reply(message, answer.data, chain_size(number), -1, &error),
              error, "reply");
    }
    close_link(link);
    puts("finished");
}

static void run_chain(partywall_link *link, uint64_t count, int is_new) {
    partywall_error *error = NULL;
    partywall_link_message *message = NULL;
    struct buffer buffer = {NULL, 0};
    uint64_t number = 0;
    for (; is_new && number < IN_FLIGHT; number++) {
        payload(&buffer, number, chain_size(number));
        check(partywall_link_send(link, buffer.data, chain_size(number), -1, &error), error, "send");
    }
    do {
        if (!next_of_chain(link, ANSWER, &message, &number)) {
            fail("the end instead of an answer");
        }
        uint64_t next = number + IN_FLIGHT;
        if (next < count) {
            payload(&buffer, next, chain_size(next));
            check(partywall_link_message_reply(message, buffer.data, chain_size(next), -1, &error),
                  error, "reply");
        } else {
            check(partywall_link_message_ack(message, &error), error, "ack");
        }
    } while (number + 1 < count);
    close_link(link);
    puts("finished");
}

static void *accept_one(void *listener) {
    partywall_channel *channel = NULL;
    partywall_listener_accept(listener, &channel, -1, NULL);
    return NULL;
}

/*
 * The server of the error tests: accepts channels and keeps them open without sending. A second
 * listener admits only the user `user`.
 */
static void serve_errors(const char *transport, const char *address, uint32_t user) {
    partywall_error *error = NULL;
    partywall_config *config = config_for(transport);
    partywall_listener *listener = NULL, *other = NULL;
    check(partywall_config_set(config, "message_max", MESSAGE_MAX, &error), error, "message_max");
    check(partywall_listener_bind(address, config, &listener, &error), error, "bind");
    if (strcmp(transport, "tcp") != 0) {
        char strict[512];
        pthread_t thread;
        snprintf(strict, sizeof strict, "%s.strict", address);
        check(partywall_config_admit_user(config, user), NULL, "admit");
        check(partywall_listener_bind(strict, config, &other, &error), error, "bind");
        if (pthread_create(&thread, NULL, accept_one, other) != 0) {
            fail("no thread");
        }
    }
    puts("ready");
    for (;;) {
        partywall_channel *channel = NULL;
        check(partywall_listener_accept(listener, &channel, -1, &error), error, "accept");
    }
}

static void cause(const char *name, int32_t status) { printf("cause %s %d\n", name, (int)status); }

static void run_errors(const char *transport, const char *address, const char *nobody,
                       uint32_t user) {
    static const unsigned char zeros[MESSAGE_MAX + 1];
    partywall_error *error = NULL;
    partywall_config *plain = config_for(transport), *odd = config_for(transport);
    partywall_channel *channel = NULL;
    const void *data = NULL;
    size_t size = 0;
    cause("address-syntax", partywall_connect("nowhere", plain, &channel, NULL));
    cause("no-listener", partywall_connect(nobody, plain, &channel, NULL));
    int32_t status = partywall_config_set(odd, "ring_bytes", 5000, NULL);
    cause("setting", status ? status : partywall_connect(address, odd, &channel, NULL));
    if (strcmp(transport, "tcp") != 0) {
        partywall_config *strict = config_for(transport);
        char other[512];
        snprintf(other, sizeof other, "%s.none", nobody);
        cause("no-socket", partywall_connect(other, plain, &channel, NULL));
        check(partywall_config_admit_user(strict, user), NULL, "admit");
        cause("not-admitted", partywall_connect(address, strict, &channel, NULL));
        snprintf(other, sizeof other, "%s.strict", address);
        cause("refused", partywall_connect(other, plain, &channel, NULL));
    }
    check(partywall_connect(address, plain, &channel, &error), error, "connect");
    cause("deadline", partywall_channel_recv_view(channel, &data, &size, 20000000, NULL));
    cause("too-long", partywall_channel_send(channel, zeros, sizeof zeros, -1, NULL));
    puts("connected");
    cause("gone", partywall_channel_recv_view(channel, &data, &size, -1, NULL));
}

static void *end_with_input(void *nothing) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(0);
    return nothing;
}

static int serve(char **words) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_with_input, NULL) != 0) {
        fail("no thread");
    }
    if (strcmp(words[1], "channel") == 0) {
        serve_channels(words[2], words[3]);
    } else if (strcmp(words[1], "session") == 0) {
        serve_sessions(words[2], words[3]);
    } else if (strcmp(words[1], "link") == 0) {
        serve_links(words[2], words[3], words[4]);
    } else if (strcmp(words[1], "chain") == 0) {
        serve_chain(words[2], words[3], words[4]);
    } else if (strcmp(words[1], "errors") == 0) {
        serve_errors(words[2], words[3], (uint32_t)strtoul(words[4], NULL, 10));
    } else {
        fail("the arguments are not those of the matrix");
    }
    return 0;
}

static int run(int count, char **words) {
    size_t sizes[SIZES_MAX], sizes_count = 0;
    for (char *at = words[4]; *at != 0 && sizes_count < SIZES_MAX;) {
        sizes[sizes_count++] = strtoull(at, &at, 10);
        at += *at == ',';
    }
    if (strcmp(words[1], "channel") == 0) {
        run_channel(words[2], words[3], sizes, sizes_count);
    } else if (strcmp(words[1], "session") == 0) {
        run_session(words[2], words[3], sizes, sizes_count);
    } else if (strcmp(words[1], "link") == 0 && count == 7) {
        run_link(connect_link(words[2], words[3], words[5], words[6]), sizes, sizes_count);
    } else if (strcmp(words[1], "chain") == 0 && count == 8) {
        run_chain(connect_link(words[2], words[3], words[5], words[6]), sizes[0],
                  strcmp(words[7], "new") == 0);
    } else {
        fail("the arguments are not those of the matrix");
    }
    return 0;
}

int main(int argc, char **argv) {
    int count = argc - 1;
    char **words = argv + 1;
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    if (count == 1 && strcmp(words[0], "features") == 0) {
        puts("channel session link");
        return 0;
    }
    if (count == 5 && strcmp(words[0], "serve") == 0) {
        return serve(words);
    }
    if (count == 6 && strcmp(words[0], "run") == 0 && strcmp(words[1], "errors") == 0) {
        run_errors(words[2], words[3], words[4], (uint32_t)strtoul(words[5], NULL, 10));
        return 0;
    }
    if (count >= 5 && strcmp(words[0], "run") == 0) {
        return run(count, words);
    }
    fail("the arguments are not those of the matrix");
    return 1;
}
