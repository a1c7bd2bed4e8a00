/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C peer of the conformance tests. It speaks the protocol shmipc through partywall.h, and has
 * the two subcommands of ../README.md, for the traffic mode echo alone. A thread serves each
 * stream.
 *
 *   peer serve --network unix --address A ...      prints "ready A", serves until the end of stdin
 *   peer run   --network unix --address A ...      drives the traffic, checks every byte, ends
 */
#include <inttypes.h>
#include <partywall.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZES_MAX 64
#define SESSIONS_MAX 64
#define PLAN_FIXED_BYTES 40
#define ENDS_TIMEOUT_S 2
#define ACCEPT_TIMEOUT_NS INT64_C(50000000)
#define DEADLINE_S 120

static struct {
    const char *network, *address, *map, *prefix, *slices;
    uint64_t sizes[SIZES_MAX];
    size_t sizes_count;
    uint64_t count, streams, buffer_cap, queue_cap, seed;
} options = {"unix", NULL, "memfd", "/dev/shm/conformance-c", NULL, {1}, 1, 1, 1, 0, 0, 1};

/*
 * The counts and faults of this run, and the condition variable that a thread signals when its
 * stream has ended.
 */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    uint64_t streams, streams_open, requests, bytes, failed;
    char error[300];
} report = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0, ""};

static void usage(const char *why) {
    fprintf(stderr, "%s\nusage: peer serve|run --network unix|tcp --address A --map file|memfd\n", why);
    exit(2);
}

/*
 * Counts a fault in the results of this run, and keeps the text of the first fault for the report.
 */
static void fail(const char *what, int32_t status, partywall_error *error) {
    pthread_mutex_lock(&report.mutex);
    if (report.failed++ == 0) {
        snprintf(report.error, sizeof report.error, "%s: %d %s", what, (int)status,
                 partywall_error_message(error));
        for (char *at = report.error; *at != 0; at++) {
            if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') {
                *at = '\'';
            }
        }
    }
    pthread_mutex_unlock(&report.mutex);
    partywall_error_free(error);
}

static void count_request(size_t size) {
    pthread_mutex_lock(&report.mutex);
    report.requests++;
    report.bytes += size;
    pthread_mutex_unlock(&report.mutex);
}

static void count_streams(int change) {
    pthread_mutex_lock(&report.mutex);
    if (change > 0) {
        report.streams++;
        report.streams_open++;
    } else {
        report.streams_open--;
        pthread_cond_signal(&report.ended);
    }
    pthread_mutex_unlock(&report.mutex);
}

/*
 * Waits until no stream of the server is open, so that the report can state the number of streams
 * that have remained open.
 */
static void await_ends(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ENDS_TIMEOUT_S;
    pthread_mutex_lock(&report.mutex);
    while (report.streams_open > 0
           && pthread_cond_timedwait(&report.ended, &report.mutex, &until) == 0) {
    }
    pthread_mutex_unlock(&report.mutex);
}

static int print_report(const char *role) {
    const char *quote = report.failed > 0 ? "\"" : "";
    printf("{\"role\":\"%s\",\"peer\":\"partywall.h\",\"streams\":%" PRIu64
           ",\"streams_open\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"uploads_whole\":0,\"uploads_cut\":0,\"failed\":%" PRIu64
           ",\"errors\":[%s%s%s],\"metrics\":{}}\n",
           role, report.streams, report.streams_open, report.requests, report.bytes, report.failed,
           quote, report.error, quote);
    return report.failed > 0;
}

/*
 * The plan of a stream: the message that announces the requests, as ../rust/traffic/src/plan.rs
 * defines it. The bytes of a request are those of ../rust/traffic/src/pattern.rs.
 */
struct plan {
    uint64_t seed, requests, sizes_count, sizes[SIZES_MAX];
};

static void put_word(unsigned char *at, uint64_t word) {
    for (int i = 7; i >= 0; i--, word >>= 8) {
        at[i] = (unsigned char)word;
    }
}

static uint64_t get_word(const unsigned char *at) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++) {
        word = word << 8 | at[i];
    }
    return word;
}

static void make_request(const struct plan *plan, uint64_t request, unsigned char *out, size_t size) {
    uint64_t state = plan->seed + request * UINT64_C(0x9e3779b97f4a7c15), word = 0;
    for (size_t i = 0; i < size; i++, word >>= 8) {
        if (i % 8 == 0) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            word = state ^ state >> 32;
        }
        out[i] = (unsigned char)word;
    }
}

/* A stream, and those bytes of its last received message that the program has not used yet. */
struct reader {
    partywall_stream *stream;
    const unsigned char *data;
    size_t left;
};

/*
 * Reads exactly `size` bytes from the stream. Returns a smaller number if the stream ends before.
 */
static size_t read_exact(struct reader *reader, unsigned char *out, size_t size) {
    size_t done = 0;
    while (done < size) {
        if (reader->left == 0) {
            const void *data = NULL;
            partywall_error *error = NULL;
            int32_t status =
                partywall_stream_recv_view(reader->stream, &data, &reader->left, -1, &error);
            if (status != PARTYWALL_OK) {
                partywall_error_free(error);
                break;
            }
            reader->data = data;
        }
        size_t count = reader->left < size - done ? reader->left : size - done;
        memcpy(out + done, reader->data, count);
        done += count;
        reader->data += count;
        reader->left -= count;
    }
    return done;
}

/*
 * Reads the next plan, which announces requests. Returns 1, or 0 at the end of the stream, or -1 if
 * the bytes are no plan.
 */
static int read_plan(struct reader *reader, struct plan *plan) {
    unsigned char head[PLAN_FIXED_BYTES], word[8];
    size_t there = read_exact(reader, head, sizeof head);
    if (there == 0) {
        return 0;
    }
    if (there < sizeof head || memcmp(head, "PWCONF01", 8) != 0 || get_word(head + 8) != 0) {
        return -1;
    }
    plan->seed = get_word(head + 16);
    plan->requests = get_word(head + 24);
    plan->sizes_count = get_word(head + 32);
    if (plan->sizes_count == 0 || plan->sizes_count > SIZES_MAX) {
        return -1;
    }
    for (uint64_t i = 0; i < plan->sizes_count; i++) {
        if (read_exact(reader, word, sizeof word) < sizeof word) {
            return -1;
        }
        plan->sizes[i] = get_word(word);
    }
    return 1;
}

/*
 * Receives request number `request` of the plan, and compares each byte with the expected byte.
 * Returns whether all are correct.
 */
static int receive_request(struct reader *reader, const struct plan *plan, uint64_t request,
                           unsigned char *got, unsigned char *wanted) {
    size_t size = plan->sizes[request % plan->sizes_count];
    make_request(plan, request, wanted, size);
    return read_exact(reader, got, size) == size && memcmp(got, wanted, size) == 0;
}

static int send_all(partywall_stream *stream, const void *data, size_t len) {
    partywall_error *error = NULL;
    int32_t status = partywall_stream_send(stream, data, len, -1, &error);
    if (status != PARTYWALL_OK) {
        fail("sending", status, error);
    }
    return status == PARTYWALL_OK;
}

/*
 * Returns memory for two requests of the plan, each of the plan's largest size, one after the
 * other.
 */
static unsigned char *make_buffers(const struct plan *plan, size_t *largest) {
    *largest = 1;
    for (uint64_t i = 0; i < plan->sizes_count; i++) {
        *largest = plan->sizes[i] > *largest ? plan->sizes[i] : *largest;
    }
    unsigned char *buffers = malloc(2 * *largest);
    if (buffers == NULL) {
        perror("buffers");
        exit(1);
    }
    return buffers;
}

static void end_stream(partywall_stream *stream) {
    partywall_stream_finish(stream, NULL);
    partywall_stream_free(stream);
    count_streams(-1);
}

static volatile int is_ending;

static void *serve_stream(void *argument) {
    struct reader reader = {argument, NULL, 0};
    struct plan plan;
    int more;
    while ((more = read_plan(&reader, &plan)) == 1) {
        size_t largest;
        unsigned char *got = make_buffers(&plan, &largest);
        for (uint64_t i = 0; i < plan.requests; i++) {
            size_t size = plan.sizes[i % plan.sizes_count];
            if (!receive_request(&reader, &plan, i, got, got + largest)) {
                fail("a request is wrong", 0, NULL);
                break;
            }
            if (!send_all(reader.stream, got, size)) {
                break;
            }
            count_request(size);
        }
        free(got);
    }
    if (more < 0) {
        fail("this is no plan of echoes", 0, NULL);
    }
    end_stream(reader.stream);
    return NULL;
}

static void start(void *(*routine)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, routine, argument) != 0) {
        perror("a thread");
        exit(1);
    }
    pthread_detach(thread);
}

static void *serve_session(void *session) {
    partywall_stream *stream = NULL;
    while (partywall_session_accept(session, 0, &stream, -1, NULL) == PARTYWALL_OK) {
        count_streams(1);
        start(serve_stream, stream);
    }
    return NULL;
}

static struct {
    partywall_session_listener *listener;
    partywall_session *sessions[SESSIONS_MAX];
    size_t count;
} server;

static void *accept_sessions(void *argument) {
    while (!is_ending && server.count < SESSIONS_MAX) {
        partywall_error *error = NULL;
        partywall_session **place = &server.sessions[server.count];
        int32_t status = partywall_session_listener_accept(server.listener, 0, place,
                                                           ACCEPT_TIMEOUT_NS, &error);
        if (status == PARTYWALL_OK) {
            start(serve_session, *place);
            server.count++;
        } else if (status != PARTYWALL_TIMED_OUT) {
            fail("accepting", status, error);
        }
    }
    return argument;
}

static const char *full_address(void) {
    static char address[600];
    snprintf(address, sizeof address, "%s:%s", options.network, options.address);
    return address;
}

static int serve(partywall_shmipc *shmipc) {
    partywall_error *error = NULL;
    char bound[600];
    size_t len = 0;
    pthread_t accepting;
    int32_t status = partywall_session_listener_bind(full_address(), NULL, NULL, 0,
                                                     &server.listener, &error);
    if (status == PARTYWALL_OK) {
        status = partywall_session_listener_add_shmipc(server.listener, shmipc, &error);
    }
    if (status == PARTYWALL_OK) {
        status = partywall_session_listener_address(server.listener, bound, sizeof bound - 1, &len,
                                                    &error);
    }
    if (status != PARTYWALL_OK) {
        fprintf(stderr, "binding: %s\n", partywall_error_message(error));
        return 1;
    }
    bound[len] = 0;
    if (pthread_create(&accepting, NULL, accept_sessions, NULL) != 0) {
        return 1;
    }
    printf("ready %s\n", strchr(bound, ':') + 1);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    await_ends();
    is_ending = 1;
    pthread_join(accepting, NULL);
    for (size_t i = 0; i < server.count; i++) {
        partywall_session_close(server.sessions[i], 0, "", NULL);
        partywall_session_wait_finished(server.sessions[i], ACCEPT_TIMEOUT_NS * 20, NULL);
    }
    await_ends();
    return print_report("server");
}

struct lane {
    partywall_stream *stream;
    uint64_t index;
    pthread_t thread;
};

static void *run_lane(void *argument) {
    struct lane *lane = argument;
    struct reader reader = {lane->stream, NULL, 0};
    struct plan plan = {options.seed + (lane->index << 32), options.count, options.sizes_count, {0}};
    unsigned char message[PLAN_FIXED_BYTES + 8 * SIZES_MAX] = "PWCONF01";
    uint64_t words[] = {0, plan.seed, plan.requests, plan.sizes_count};
    size_t largest;
    for (size_t i = 0; i < 4; i++) {
        put_word(message + 8 + 8 * i, words[i]);
    }
    for (size_t i = 0; i < plan.sizes_count; i++) {
        plan.sizes[i] = options.sizes[i];
        put_word(message + PLAN_FIXED_BYTES + 8 * i, plan.sizes[i]);
    }
    unsigned char *got = make_buffers(&plan, &largest);
    int is_right = send_all(lane->stream, message, PLAN_FIXED_BYTES + 8 * plan.sizes_count);
    for (uint64_t i = 0; is_right && i < plan.requests; i++) {
        size_t size = plan.sizes[i % plan.sizes_count];
        make_request(&plan, i, got, size);
        if (!send_all(lane->stream, got, size)) {
            break;
        }
        is_right = receive_request(&reader, &plan, i, got, got + largest);
        if (!is_right) {
            fail("an answer is wrong", 0, NULL);
        } else {
            count_request(size);
        }
    }
    free(got);
    end_stream(lane->stream);
    return NULL;
}

static int run(partywall_shmipc *shmipc) {
    partywall_error *error = NULL;
    partywall_session *session = NULL;
    struct lane *lanes = calloc(options.streams, sizeof *lanes);
    int32_t status = partywall_shmipc_connect(shmipc, full_address(), NULL, NULL, 0, &session, &error);
    if (lanes == NULL || status != PARTYWALL_OK) {
        fprintf(stderr, "connecting: %s\n", partywall_error_message(error));
        return 1;
    }
    printf("connected\n");
    fflush(stdout);
    for (uint64_t i = 0; i < options.streams; i++) {
        lanes[i].index = i;
        status = partywall_session_open(session, NULL, 0, 0, &lanes[i].stream, -1, &error);
        if (status != PARTYWALL_OK) {
            fail("opening", status, error);
            return print_report("client");
        }
        count_streams(1);
    }
    for (uint64_t i = 0; i < options.streams; i++) {
        if (pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]) != 0) {
            perror("a thread");
            return 1;
        }
    }
    for (uint64_t i = 0; i < options.streams; i++) {
        pthread_join(lanes[i].thread, NULL);
    }
    free(lanes);
    partywall_session_close(session, 0, "", NULL);
    partywall_session_wait_finished(session, ACCEPT_TIMEOUT_NS * 20, NULL);
    partywall_session_free(session);
    return print_report("client");
}

static uint64_t number(const char *text) {
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *end != 0) {
        usage("this is no number");
    }
    return value;
}

static void parse_sizes(char *text) {
    options.sizes_count = 0;
    for (char *size = strtok(text, ","); size != NULL; size = strtok(NULL, ",")) {
        if (options.sizes_count == SIZES_MAX) {
            usage("these are too many sizes");
        }
        options.sizes[options.sizes_count++] = number(size);
    }
}

static void parse(int argc, char **argv) {
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *name = argv[i];
        char *value = argv[i + 1];
        if (strcmp(name, "--network") == 0) {
            options.network = value;
        } else if (strcmp(name, "--address") == 0) {
            options.address = value;
        } else if (strcmp(name, "--map") == 0) {
            options.map = value;
        } else if (strcmp(name, "--prefix") == 0) {
            options.prefix = value;
        } else if (strcmp(name, "--sizes") == 0) {
            parse_sizes(value);
        } else if (strcmp(name, "--count") == 0) {
            options.count = number(value);
        } else if (strcmp(name, "--streams") == 0) {
            options.streams = number(value);
        } else if (strcmp(name, "--buffer-cap") == 0) {
            options.buffer_cap = number(value);
        } else if (strcmp(name, "--queue-cap") == 0) {
            options.queue_cap = number(value);
        } else {
            usage(name);
        }
    }
    if (argc < 2 || argc % 2 != 0 || options.address == NULL) {
        usage("--address is missing, or an argument has no value");
    }
}

/* Makes the configuration of shmipc that the options of the command line describe. */
static partywall_shmipc *make_protocol(void) {
    partywall_shmipc_config *config = NULL;
    partywall_shmipc *shmipc = NULL;
    partywall_error *error = NULL;
    int is_file = strcmp(options.map, "file") == 0;
    int32_t status = partywall_shmipc_config_new(&config, &error);
#define SET(call) status = status != PARTYWALL_OK ? status : (call)
    SET(partywall_shmipc_config_set_text(config, "share_memory_path_prefix", options.prefix, &error));
    SET(partywall_shmipc_config_set(config, "mem_map_type",
                                    is_file ? PARTYWALL_SHMIPC_FILE : PARTYWALL_SHMIPC_MEMFD, &error));
    SET(partywall_shmipc_config_set(config, "files_without_credentials",
                                    strcmp(options.network, "tcp") == 0, &error));
    if (options.buffer_cap > 0) {
        SET(partywall_shmipc_config_set(config, "share_memory_buffer_cap", options.buffer_cap, &error));
    }
    if (options.queue_cap > 0) {
        SET(partywall_shmipc_config_set(config, "queue_cap", options.queue_cap, &error));
    }
    SET(partywall_shmipc_new(config, &shmipc, &error));
    if (status != PARTYWALL_OK) {
        fprintf(stderr, "settings: %s\n", partywall_error_message(error));
        exit(2);
    }
    partywall_shmipc_config_free(config);
    return shmipc;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    alarm(DEADLINE_S);
    partywall_shmipc *shmipc = make_protocol();
    int status = strcmp(argv[1], "serve") == 0 ? serve(shmipc) : run(shmipc);
    partywall_shmipc_free(shmipc);
    return status;
}
