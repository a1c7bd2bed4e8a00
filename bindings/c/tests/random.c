/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that call functions in a random order with shared handles: of any type, in use by another
 * thread, freed, or null. No call panics or crashes, and in the end no thread and no descriptor is
 * left over.
 */
#include "check.h"
#include <dirent.h>
#include <sched.h>
#include <time.h>

#define THREADS 3
#define STEPS 3000
#define HANDLES 6

enum kind { MESSAGE, RESERVATION, CHANNEL, LISTENER, LOOP, SESSION, ACCEPTING, STREAM, KINDS };

static const char *directory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *handles[KINDS][HANDLES];

struct monkey {
    pthread_t thread;
    uint64_t random;
    unsigned number, pairs;
};

static size_t below(struct monkey *it, size_t limit) {
    it->random ^= it->random << 13;
    it->random ^= it->random >> 7;
    it->random ^= it->random << 17;
    return (size_t)(it->random >> 20) % limit;
}

/*
 * Returns a shared handle of the type `kind`, and sometimes a handle of another type, a number that
 * is no handle, or null.
 */
static void *any(struct monkey *it, enum kind kind) {
    size_t choice = below(it, 50);
    void *found = NULL;
    if (choice == 0) {
        return NULL;
    }
    if (choice == 1) {
        return (void *)(uintptr_t)it->random;
    }
    pthread_mutex_lock(&lock);
    for (size_t attempt = 0; attempt < HANDLES && found == NULL; attempt++) {
        found = handles[choice == 2 ? below(it, KINDS) : kind][below(it, HANDLES)];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int32_t free_handle(enum kind kind, void *handle) {
    switch (kind) {
    case MESSAGE: return partywall_message_free(handle);
    case RESERVATION: return partywall_reservation_abort(handle);
    case CHANNEL: return partywall_channel_free(handle);
    case LISTENER: return partywall_listener_free(handle);
    case LOOP: return partywall_loop_free(handle);
    case SESSION: return partywall_session_free(handle);
    case ACCEPTING: return partywall_session_listener_free(handle);
    default: return partywall_stream_free(handle);
    }
}

/* Frees a handle that another thread may be using or may have freed. */
static void discard(enum kind kind, void *handle) {
    int32_t status;
    while ((status = free_handle(kind, handle)) == PARTYWALL_BUSY) {
        sched_yield();
    }
    CHECK(status == PARTYWALL_OK || status == PARTYWALL_HANDLE);
}

/* Puts a handle into the table that all threads use, and frees the handle that was in its place. */
static void share(struct monkey *it, enum kind kind, void *handle) {
    if (handle != NULL) {
        pthread_mutex_lock(&lock);
        void **place = &handles[kind][below(it, HANDLES)];
        void *old = *place;
        *place = handle;
        pthread_mutex_unlock(&lock);
        discard(kind, old);
    }
}

static int64_t timeout(struct monkey *it) {
    static const int64_t timeouts[] = {0, 0, 0, 1, 1000, 100000};
    return timeouts[below(it, 6)];
}

struct dialing {
    char address[600];
    partywall_config *config;
    partywall_loop *loop;
    partywall_channel *channel;
    partywall_session *session;
};

static void *dial_channel(void *argument) {
    struct dialing *it = argument;
    OK(partywall_connect(it->address, it->config, &it->channel, NULL));
    return NULL;
}

static void *dial_session(void *argument) {
    struct dialing *it = argument;
    int32_t status = partywall_session_connect(it->address, it->config, it->loop, 7, &it->session,
                                               NULL);
    /* Connecting may fail: the loop that the call names may be null, of another type, or freed. */
    CHECK(status != PARTYWALL_PANIC && (status == PARTYWALL_OK || it->session == NULL));
    return NULL;
}

static void configure(struct monkey *it, partywall_config *config) {
    OK(partywall_config_set(config, "transport", below(it, 3), NULL));
    OK(partywall_config_set(config, "back_pressure", below(it, 3), NULL));
    OK(partywall_config_set(config, "ring_bytes", 4096, NULL));
    OK(partywall_config_set(config, "inline_max", 500, NULL));
    OK(partywall_config_set(config, "memory_max", 1 << 20, NULL));
    OK(partywall_config_set(config, "linger_ns", 100000000, NULL));
}

static void make_channels(struct monkey *it, struct dialing *dialing) {
    partywall_listener *listener = NULL;
    partywall_channel *channel = NULL;
    pthread_t thread;
    OK(partywall_listener_bind(dialing->address, dialing->config, &listener, NULL));
    CHECK(pthread_create(&thread, NULL, dial_channel, dialing) == 0);
    OK(partywall_listener_accept(listener, &channel, TIMEOUT_NS, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    share(it, CHANNEL, channel);
    share(it, CHANNEL, dialing->channel);
    share(it, LISTENER, listener);
}

static void make_sessions(struct monkey *it, struct dialing *dialing) {
    partywall_session_listener *listener = NULL;
    partywall_session *session = NULL;
    partywall_config *config = dialing->config;
    pthread_t thread;
    OK(partywall_session_listener_bind(dialing->address, config, NULL, 0, &listener, NULL));
    dialing->loop = below(it, 2) == 0 ? any(it, LOOP) : NULL;
    CHECK(pthread_create(&thread, NULL, dial_session, dialing) == 0);
    int32_t status = PARTYWALL_TIMED_OUT;
    for (int attempt = 0; attempt < 100 && status != PARTYWALL_OK; attempt++) {
        status = partywall_session_listener_accept(listener, 0, &session, 1000000, NULL);
        CHECK(status != PARTYWALL_PANIC);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    share(it, SESSION, session);
    share(it, SESSION, dialing->session);
    share(it, ACCEPTING, listener);
}

static int32_t make_pair_of_ends(struct monkey *it) {
    struct dialing dialing = {"", NULL, NULL, NULL, NULL};
    snprintf(dialing.address, sizeof dialing.address, "unix:%s/%u-%u", directory, it->number,
             it->pairs++);
    OK(partywall_config_new(&dialing.config, NULL));
    configure(it, dialing.config);
    if (below(it, 2) == 0) {
        make_channels(it, &dialing);
    } else {
        make_sessions(it, &dialing);
    }
    OK(partywall_config_free(dialing.config));
    return PARTYWALL_OK;
}

/*
 * Writes to reserved memory, which is allowed even after its channel or session was freed. Then
 * gives the reservation to all threads.
 */
static int32_t fill(struct monkey *it, int32_t status, void *data, size_t len, void *reservation) {
    if (status == PARTYWALL_OK) {
        memset(data, 1, len);
        share(it, RESERVATION, reservation);
    }
    return status;
}

static int32_t call_channel(struct monkey *it, const char *bytes, size_t len,
                             partywall_error **why) {
    partywall_message *message = NULL;
    partywall_reservation *reservation = NULL;
    void *channel = any(it, CHANNEL), *data = NULL;
    const void *view = NULL;
    char buffer[300];
    int64_t time = timeout(it);
    int32_t status = PARTYWALL_OK;
    switch (below(it, 12)) {
    case 0: return partywall_loop_add_channel(any(it, LOOP), channel, 1, why);
    case 1: return partywall_channel_commit(channel, any(it, RESERVATION), time, why);
    case 2: return partywall_channel_flush(channel, time, why);
    case 3: return partywall_channel_recv_view(channel, &view, &len, time, why);
    case 4: return partywall_channel_recv_copy(channel, buffer, sizeof buffer, &len, time, why);
    case 5: return partywall_channel_pause(channel, why);
    case 6: return below(it, 8) == 0 ? partywall_channel_close_write(channel, why) : status;
    case 7: status = partywall_channel_reserve(channel, len, &data, &reservation, time, why);
        return fill(it, status, data, len, reservation);
    case 8: status = partywall_channel_keep(channel, &message, why); break;
    case 9: status = partywall_channel_recv(channel, &message, time, why); break;
    default: return partywall_channel_send(channel, bytes, len, time, why);
    }
    share(it, MESSAGE, message);
    return status;
}

static int32_t call_stream(struct monkey *it, const char *bytes, size_t len,
                            partywall_error **why) {
    partywall_message *message = NULL;
    partywall_reservation *reservation = NULL;
    void *stream = any(it, STREAM), *data = NULL;
    const void *view = NULL;
    char buffer[300];
    int64_t time = timeout(it);
    int32_t status = PARTYWALL_OK;
    switch (below(it, 12)) {
    case 0: return below(it, 8) == 0 ? partywall_stream_finish(stream, why) : status;
    case 1: return partywall_stream_commit(stream, any(it, RESERVATION), time, why);
    case 2: return below(it, 8) == 0 ? partywall_stream_reset(stream, 5, why) : status;
    case 3: return partywall_stream_recv_view(stream, &view, &len, time, why);
    case 4: return partywall_stream_recv_copy(stream, buffer, sizeof buffer, &len, time, why);
    case 5: return partywall_stream_pause(stream, why);
    case 6: return below(it, 8) == 0 ? partywall_stream_stop(stream, 5, why) : status;
    case 7: status = partywall_stream_reserve(stream, len, &data, &reservation, time, why);
        return fill(it, status, data, len, reservation);
    case 8: status = partywall_stream_keep(stream, &message, why); break;
    case 9: status = partywall_stream_recv(stream, &message, time, why); break;
    default: return partywall_stream_send(stream, bytes, len, time, why);
    }
    share(it, MESSAGE, message);
    return status;
}

static int32_t call_session(struct monkey *it, partywall_error **why) {
    partywall_stream *stream = NULL;
    void *session = any(it, SESSION);
    int64_t time = timeout(it);
    size_t count = 0;
    int32_t reason = 0, status;
    switch (below(it, 8)) {
    case 0: return partywall_session_streams(session, &count);
    case 1: return partywall_session_wait_drained(session, time, why);
    case 2: return partywall_session_wait_closed(session, &reason, NULL, time, why);
    case 3: return below(it, 20) == 0 ? partywall_session_close(session, 5, "", why) : 0;
    case 4: case 5: status = partywall_session_open(session, "m", 1, 3, &stream, time, why); break;
    default: status = partywall_session_accept(session, 4, &stream, time, why); break;
    }
    share(it, STREAM, stream);
    return status;
}

static int32_t call_loop(struct monkey *it, partywall_error **why) {
    partywall_event events[4];
    partywall_loop *made = NULL;
    size_t count = 0;
    int64_t time = timeout(it);
    switch (below(it, 8)) {
    case 0: OK(partywall_loop_new(&made, why)); break;
    case 1: OK(partywall_loop_new_once(&made, why)); break;
    case 2: return partywall_loop_add_listener(any(it, LOOP), any(it, LISTENER), 2, why);
    case 3: return partywall_loop_next_timer(any(it, LOOP), &time);
    default: return partywall_loop_wait(any(it, LOOP), events, 4, &count, time, why);
    }
    share(it, LOOP, made);
    return PARTYWALL_OK;
}

static int32_t step(struct monkey *it, partywall_error **why) {
    static const char bytes[70000];
    static const size_t lens[] = {0, 1, 48, 400, 600, 5000, 70000};
    size_t len = lens[below(it, 7)];
    enum kind kind = (enum kind)below(it, KINDS);
    switch (below(it, 40)) {
    case 0: return make_pair_of_ends(it);
    case 1: return free_handle(kind, any(it, kind));
    case 2: case 3: case 4: return call_loop(it, why);
    case 5: case 6: case 7: case 8: return call_session(it, why);
    default:
        return below(it, 2) == 0 ? call_channel(it, bytes, len, why)
                                 : call_stream(it, bytes, len, why);
    }
}

static void *run(void *argument) {
    struct monkey *it = argument;
    for (int i = 0; i < STEPS; i++) {
        partywall_error *error = NULL;
        int32_t status = step(it, &error);
        if (status == PARTYWALL_PANIC) {
            fprintf(stderr, "%s\n", partywall_error_message(error));
        }
        CHECK(status >= 0 && status != PARTYWALL_PANIC);
        OK(partywall_error_free(error));
    }
    return NULL;
}

/*
 * Returns the number of entries of a directory: of this process's descriptors, or of its threads.
 */
static int count(const char *path) {
    int count = 0;
    DIR *list = opendir(path);
    CHECK(list != NULL);
    while (readdir(list) != NULL) {
        count++;
    }
    CHECK(closedir(list) == 0);
    return count;
}

int main(int argc, char **argv) {
    static struct monkey monkeys[THREADS];
    CHECK(argc > 1);
    directory = argv[1];
    int descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
    for (unsigned i = 0; i < THREADS; i++) {
        monkeys[i] = (struct monkey){.random = 88172645463325252u + i, .number = i};
        CHECK(pthread_create(&monkeys[i].thread, NULL, run, &monkeys[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(monkeys[i].thread, NULL) == 0);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < HANDLES; i++) {
            discard((enum kind)kind, handles[kind][i]);
        }
    }
    /*
     * A session ends in its own thread, which waits at most 100 ms until the session's last bytes
     * are written.
     */
    time_t until = time(NULL) + 30;
    while (count("/proc/self/fd") > descriptors || count("/proc/self/task") > threads) {
        CHECK(time(NULL) < until);
        sched_yield();
    }
    return 0;
}
