/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures the C library with messages whose bytes are all written and all read: one thread holds
 * both ends of a channel. Each line of the input is a size, a multiple of 8, and a number of
 * messages; the answer is the nanoseconds for each message. The command `bench-peers one-thread`
 * runs this program.
 */
#define _POSIX_C_SOURCE 199309L
#include <inttypes.h>
#include <partywall.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        int32_t status_ = (call);                                                                  \
        if (status_ != PARTYWALL_OK) {                                                             \
            fprintf(stderr, "%s: %d\n", #call, (int)status_);                                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct connecting {
    const char *address;
    partywall_channel *channel;
};

static void *connect_thread(void *argument) {
    struct connecting *it = argument;
    OK(partywall_connect(it->address, NULL, &it->channel, NULL));
    return NULL;
}

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/*
 * Returns the sum of all words of a message. It adds up eight partial sums at the same time,
 * because the Rust compiler does so in the program with which this one is compared.
 */
static uint64_t sum_of(const void *data, size_t len) {
    const char *bytes = data;
    uint64_t sums[8] = {0}, words[8], sum = 0, word;
    size_t i = 0;
    for (; i + sizeof words <= len; i += sizeof words) {
        memcpy(words, bytes + i, sizeof words);
        for (int part = 0; part < 8; part++) {
            sums[part] += words[part];
        }
    }
    for (; i + sizeof word <= len; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    for (int part = 0; part < 8; part++) {
        sum += sums[part];
    }
    return sum;
}

/*
 * Sends and receives `count` messages, whose first words differ, and returns the time in seconds.
 */
static double exchange(partywall_channel *client, partywall_channel *server, uint64_t *payload,
                       size_t size, uint64_t count) {
    uint64_t others = sum_of(payload + 1, size - sizeof *payload);
    double start = nanoseconds();
    for (uint64_t i = 0; i < count; i++) {
        const void *data = NULL;
        size_t len = 0;
        payload[0] = i;
        OK(partywall_channel_send(client, payload, size, 0, NULL));
        OK(partywall_channel_recv_view(server, &data, &len, 0, NULL));
        if (len != size || sum_of(data, len) != others + i) {
            fprintf(stderr, "message %" PRIu64 " is not what was sent\n", i);
            exit(1);
        }
    }
    return nanoseconds() - start;
}

int main(void) {
    char address[64];
    struct connecting it = {address, NULL};
    partywall_listener *listener = NULL;
    partywall_channel *server = NULL;
    pthread_t thread;
    size_t size = 0;
    uint64_t count = 0;
    snprintf(address, sizeof address, "unix:@partywall-one-thread-%ld", (long)getpid());
    OK(partywall_listener_bind(address, NULL, &listener, NULL));
    if (pthread_create(&thread, NULL, connect_thread, &it) != 0) {
        return 1;
    }
    OK(partywall_listener_accept(listener, &server, -1, NULL));
    pthread_join(thread, NULL);
    while (scanf("%zu %" SCNu64, &size, &count) == 2 && size >= 8 && size % 8 == 0 && count > 0) {
        uint64_t *payload = malloc(size);
        if (payload == NULL) {
            return 1;
        }
        for (size_t i = 0; i < size / 8; i++) {
            payload[i] = i * 0x9e3779b97f4a7c15u;
        }
        double taken = exchange(it.channel, server, payload, size, count);
        printf("%.3f\n", taken / (double)count);
        fflush(stdout);
        free(payload);
    }
    OK(partywall_channel_free(it.channel));
    OK(partywall_channel_free(server));
    OK(partywall_listener_free(listener));
    return 0;
}
