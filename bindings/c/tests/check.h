/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of the test programs: a check that fails prints its place, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <partywall.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition);               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define STATUS(call, wanted)                                                                       \
    do {                                                                                           \
        int32_t status_ = (call);                                                                  \
        if (status_ != (wanted)) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %d instead of %d\n", __FILE__, __LINE__, #call, (int)status_, \
                    (int)(wanted));                                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) STATUS(call, PARTYWALL_OK)

/* Maximum time of a call that has to succeed: 30 s, enough for a slow machine. */
#define TIMEOUT_NS INT64_C(30000000000)

static inline const char *address_in(const char *directory) {
    static char address[512];
    snprintf(address, sizeof address, "unix:%s/app.sock", directory);
    return address;
}

/* The two ends of one channel. */
struct pair {
    partywall_listener *listener;
    partywall_channel *client, *server;
};

struct connecting {
    const char *address;
    partywall_config *config;
    partywall_channel *channel;
};

#include <pthread.h>

static inline void *connect_thread(void *argument) {
    struct connecting *it = argument;
    OK(partywall_connect(it->address, it->config, &it->channel, NULL));
    return NULL;
}

static inline struct pair make_pair(const char *address, partywall_config *config) {
    struct pair pair;
    struct connecting it = {address, config, NULL};
    pthread_t thread;
    OK(partywall_listener_bind(address, config, &pair.listener, NULL));
    CHECK(pthread_create(&thread, NULL, connect_thread, &it) == 0);
    OK(partywall_listener_accept(pair.listener, &pair.server, TIMEOUT_NS, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    pair.client = it.channel;
    return pair;
}

static inline void free_pair(struct pair pair) {
    OK(partywall_channel_free(pair.client));
    OK(partywall_channel_free(pair.server));
    OK(partywall_listener_free(pair.listener));
}

#endif
