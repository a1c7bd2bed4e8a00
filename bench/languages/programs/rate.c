/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The client and the server of a measurement, written in C. The programs of all languages have the
 * same command line, which bench/languages/README.md describes.
 */
#include <inttypes.h>
#include <partywall.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/*
 * What carries the messages of a measurement: a channel, or a Unix socket. Both sides know the
 * length of each message.
 */
struct carrier {
    partywall_channel *channel;
    int socket;
};

static void fail(const char *what) {
    fprintf(stderr, "rate: %s\n", what);
    exit(1);
}

static void transmit(struct carrier *carrier, const void *data, size_t size) {
    const char *at = data;
    if (carrier->channel != NULL) {
        if (partywall_channel_send(carrier->channel, data, size, -1, NULL)) {
            fail("a message was not sent");
        }
        return;
    }
    while (size > 0) {
        ssize_t count = write(carrier->socket, at, size);
        if (count < 0) {
            fail("a message was not written");
        }
        at += count;
        size -= (size_t)count;
    }
}

/*
 * Receives the next message into `data`. Returns 0 once the peer has closed the channel or socket.
 */
static int receive(struct carrier *carrier, void *data, size_t size) {
    char *at = data;
    if (carrier->channel != NULL) {
        return partywall_channel_recv_copy(carrier->channel, data, size, &size, -1, NULL) == 0;
    }
    while (size > 0) {
        ssize_t count = read(carrier->socket, at, size);
        if (count <= 0) {
            return 0;
        }
        at += count;
        size -= (size_t)count;
    }
    return 1;
}

static void *buffer_of(uint64_t size) {
    void *buffer = calloc(1, size < 8 ? 8 : size);
    if (buffer == NULL) {
        fail("no memory");
    }
    return buffer;
}

/*
 * Performs the server's part of each task that the client announces, until the client has closed.
 */
static void *answer(void *argument) {
    struct carrier *carrier = argument;
    uint64_t command[3];
    while (receive(carrier, command, sizeof command)) {
        void *message = buffer_of(command[1]);
        for (uint64_t index = 0; index < command[2]; index++) {
            if (!receive(carrier, message, command[1])) {
                fail("the client has gone");
            }
            if (command[0] == 0) {
                transmit(carrier, message, command[1]);
            }
        }
        if (command[0] == 1) {
            transmit(carrier, command, 8);
        }
        free(message);
    }
    return NULL;
}

static struct sockaddr_un name_of(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    return name;
}

static void serve(const char *address, const char *path) {
    struct sockaddr_un name = name_of(path);
    struct carrier first = {NULL, -1}, second = {NULL, -1};
    partywall_listener *listener = NULL;
    pthread_t thread;
    int sockets = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(sockets, (struct sockaddr *)&name, sizeof name) || listen(sockets, 1) ||
        partywall_listener_bind(address, NULL, &listener, NULL)) {
        fail("cannot listen");
    }
    puts("ready");
    if (partywall_listener_accept(listener, &first.channel, -1, NULL)) {
        fail("cannot accept");
    }
    second.socket = accept(sockets, NULL, NULL);
    if (pthread_create(&thread, NULL, answer, &second)) {
        fail("no thread");
    }
    answer(&first);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/*
 * Performs the client's part of a task with `count` messages of `size` bytes, and returns its
 * duration in nanoseconds.
 */
static int64_t measure(struct carrier *carrier, uint64_t task, uint64_t size, uint64_t count) {
    uint64_t command[3] = {task, size, count};
    void *message = buffer_of(size);
    transmit(carrier, command, sizeof command);
    int64_t start = now_ns();
    for (uint64_t index = 0; index < count; index++) {
        transmit(carrier, message, size);
        if (task == 0 && !receive(carrier, message, size)) {
            fail("the server has gone");
        }
    }
    if (task == 1 && !receive(carrier, message, 8)) {
        fail("the server has gone");
    }
    int64_t elapsed = now_ns() - start;
    free(message);
    return elapsed;
}

static void run(const char *address, const char *path) {
    struct sockaddr_un name = name_of(path);
    struct carrier first = {NULL, -1}, second = {NULL, -1};
    char carrier[16], task[16];
    uint64_t size = 0, count = 0;
    second.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (partywall_connect(address, NULL, &first.channel, NULL) ||
        connect(second.socket, (struct sockaddr *)&name, sizeof name)) {
        fail("cannot connect");
    }
    puts("ready");
    while (scanf("%15s %15s %" SCNu64 " %" SCNu64, carrier, task, &size, &count) == 4) {
        struct carrier *chosen = strcmp(carrier, "ours") == 0 ? &first : &second;
        printf("%" PRId64 "\n", measure(chosen, strcmp(task, "way") == 0, size, count));
    }
    partywall_channel_free(first.channel);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    if (argc == 4 && strcmp(argv[1], "serve") == 0) {
        serve(argv[2], argv[3]);
    } else if (argc == 4 && strcmp(argv[1], "run") == 0) {
        run(argv[2], argv[3]);
    } else {
        return fputs("rate serve|run ADDRESS SOCKET\n", stderr), 2;
    }
    return 0;
}
