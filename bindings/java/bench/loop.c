/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures the C library, with which Java is compared: one thread holds both ends of a channel.
 * Each line of the input is a size and a number of messages; the answer is the nanoseconds for each
 * message.
 */
#define _POSIX_C_SOURCE 199309L
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

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * Sends and receives `count` messages, and returns the seconds. `*sum` adds up bytes of the
 * messages, so that the compiler keeps the reads.
 */
static double exchange(partywall_channel *client, partywall_channel *server, const char *payload,
                       size_t size, long count, unsigned *sum) {
    double start = seconds();
    for (long i = 0; i < count; i++) {
        const void *data = NULL;
        size_t len = 0;
        OK(partywall_channel_send(client, payload, size, 0, NULL));
        OK(partywall_channel_recv_view(server, &data, &len, 0, NULL));
        *sum += ((const unsigned char *)data)[0] + ((const unsigned char *)data)[len - 1];
    }
    return seconds() - start;
}

int main(void) {
    char address[64];
    struct connecting it = {address, NULL};
    partywall_listener *listener = NULL;
    partywall_channel *server = NULL;
    pthread_t thread;
    size_t size = 0;
    long count = 0;
    unsigned sum = 0;
    snprintf(address, sizeof address, "unix:@partywall-loop-%ld", (long)getpid());
    OK(partywall_listener_bind(address, NULL, &listener, NULL));
    if (pthread_create(&thread, NULL, connect_thread, &it) != 0) {
        return 1;
    }
    OK(partywall_listener_accept(listener, &server, -1, NULL));
    pthread_join(thread, NULL);
    while (scanf("%zu %ld", &size, &count) == 2 && size > 0 && count > 0) {
        char *payload = calloc(size, 1);
        if (payload == NULL) {
            return 1;
        }
        double taken = exchange(it.channel, server, payload, size, count, &sum);
        printf("%.3f\n", taken * 1e9 / (double)count);
        fflush(stdout);
        free(payload);
    }
    OK(partywall_channel_free(it.channel));
    OK(partywall_channel_free(server));
    OK(partywall_listener_free(listener));
    return sum == 0 ? 0 : 1;
}
