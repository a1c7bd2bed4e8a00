/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A server of many channels in one event loop: alone, and with an epoll set that watches the
 * loop's descriptor, level-triggered or edge-triggered. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CHANNELS 20
#define MESSAGES 50

struct server {
    partywall_loop *loop;
    partywall_listener *listener;
    partywall_channel *channels[CHANNELS + 1];
    size_t accepted, ended, received;
};

/* A client thread: opens a channel, sends messages, and receives each of them back. */
static void *client(void *address) {
    partywall_channel *channel = NULL;
    OK(partywall_connect(address, NULL, &channel, NULL));
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint32_t answer = 0;
        size_t len = 0;
        OK(partywall_channel_send(channel, &i, sizeof i, TIMEOUT_NS, NULL));
        OK(partywall_channel_recv_copy(channel, &answer, sizeof answer, &len, TIMEOUT_NS, NULL));
        CHECK(len == sizeof answer && answer == i);
    }
    OK(partywall_channel_free(channel));
    return NULL;
}

static void accept_all(struct server *server) {
    int32_t status;
    partywall_channel *channel = NULL;
    while ((status = partywall_listener_accept(server->listener, &channel, 0, NULL)) == 0) {
        size_t tag = ++server->accepted;
        CHECK(tag <= CHANNELS);
        server->channels[tag] = channel;
        OK(partywall_loop_add_channel(server->loop, channel, tag, NULL));
        STATUS(partywall_loop_add_channel(server->loop, channel, tag, NULL), PARTYWALL_ARGUMENT);
        STATUS(partywall_channel_send(channel, "x", 1, -1, NULL), PARTYWALL_ARGUMENT);
    }
    CHECK(status == PARTYWALL_TIMED_OUT);
}

/*
 * Sends back one message of a channel. While the channel has more messages, the loop reports it
 * again.
 */
static void answer(struct server *server, size_t tag) {
    uint32_t message = 0;
    size_t len = 0;
    partywall_channel *channel = server->channels[tag];
    if (channel == NULL) {
        return;
    }
    int32_t status = partywall_channel_recv_copy(channel, &message, sizeof message, &len, 0, NULL);
    if (status == PARTYWALL_OK) {
        CHECK(len == sizeof message);
        server->received++;
        OK(partywall_channel_send(channel, &message, len, 0, NULL));
    } else if (status != PARTYWALL_EMPTY) {
        CHECK(status == PARTYWALL_FINISHED);
        OK(partywall_channel_free(channel));
        server->channels[tag] = NULL;
        server->ended++;
    }
}

/*
 * Waits once for events, and serves their channels. The array has 3 places, so that some events are
 * left for the next wait.
 */
static size_t turn(struct server *server, int64_t timeout_ns) {
    partywall_event events[3];
    size_t count = 0;
    OK(partywall_loop_wait(server->loop, events, 3, &count, timeout_ns, NULL));
    CHECK(count <= 3);
    for (size_t i = 0; i < count; i++) {
        CHECK(events[i].kinds != 0 && events[i].reserved == 0);
        if (events[i].tag == 0) {
            accept_all(server);
        } else {
            answer(server, events[i].tag);
        }
    }
    return count;
}

/*
 * Serves all clients. `kind` says which epoll set watches the loop's descriptor: 0 a
 * level-triggered one, 1 an edge-triggered one, -1 none.
 */
static void serve(const char *address, int kind) {
    struct server server;
    pthread_t threads[CHANNELS];
    int outer = -1;
    int32_t fd = -1;
    memset(&server, 0, sizeof server);
    OK(partywall_loop_new(&server.loop, NULL));
    OK(partywall_loop_fd(server.loop, &fd));
    OK(partywall_listener_bind(address, NULL, &server.listener, NULL));
    OK(partywall_loop_add_listener(server.loop, server.listener, 0, NULL));
    if (kind >= 0) {
        struct epoll_event event = {.events = EPOLLIN | (uint32_t)(kind == 1 ? EPOLLET : 0)};
        outer = epoll_create1(EPOLL_CLOEXEC);
        CHECK(outer >= 0 && epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event) == 0);
    }
    for (size_t i = 0; i < CHANNELS; i++) {
        CHECK(pthread_create(&threads[i], NULL, client, (void *)address) == 0);
    }
    while (server.ended < CHANNELS) {
        if (kind >= 0) {
            struct epoll_event event;
            /*
             * The epoll set watches the loop's descriptor, which also becomes readable for timers,
             * so the wait needs no timeout for them. 30 s without an event is a failure.
             */
            CHECK(epoll_wait(outer, &event, 1, 30000) == 1);
            /*
             * An edge-triggered epoll set reports the descriptor once, so the server waits until
             * the loop fills fewer than the 3 places of the array.
             */
            while (turn(&server, 0) == 3 && kind == 1 && server.ended < CHANNELS) {
            }
        } else {
            CHECK(turn(&server, TIMEOUT_NS) > 0);
        }
    }
    CHECK(server.received == CHANNELS * MESSAGES);
    for (size_t i = 0; i < CHANNELS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (outer >= 0) {
        close(outer);
    }
    OK(partywall_listener_free(server.listener));
    OK(partywall_loop_free(server.loop));
}

/*
 * The loop does not report a channel that was freed between two waits, even if the channel had an
 * event before.
 */
static void freed(const char *address) {
    partywall_loop *loop = NULL;
    partywall_event event;
    size_t count = 0;
    struct pair pairs[2] = {make_pair(address, NULL), {NULL, NULL, NULL}};
    OK(partywall_listener_free(pairs[0].listener));
    pairs[1] = make_pair(address, NULL);
    OK(partywall_loop_new(&loop, NULL));
    for (size_t i = 0; i < 2; i++) {
        OK(partywall_loop_add_channel(loop, pairs[i].server, i + 1, NULL));
        OK(partywall_channel_send(pairs[i].client, "x", 1, TIMEOUT_NS, NULL));
    }
    OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
    CHECK(count == 1 && (event.tag == 1 || event.tag == 2));
    OK(partywall_channel_free(pairs[2 - event.tag].server));
    for (size_t i = 0; i < 10; i++) {
        uint64_t freed = 3 - event.tag;
        partywall_event next;
        OK(partywall_loop_wait(loop, &next, 1, &count, 0, NULL));
        CHECK(count == 0 || next.tag != freed);
    }
    OK(partywall_channel_free(pairs[event.tag - 1].server));
    OK(partywall_channel_free(pairs[0].client));
    OK(partywall_channel_free(pairs[1].client));
    OK(partywall_listener_free(pairs[1].listener));
    OK(partywall_loop_free(loop));
}

/*
 * A loop that reports each event once does not report again a message that nobody has received yet.
 */
static void once(const char *address) {
    partywall_loop *loop = NULL;
    partywall_event event;
    const void *data = NULL;
    size_t count = 0, len = 0;
    struct pair pair = make_pair(address, NULL);
    OK(partywall_loop_new_once(&loop, NULL));
    OK(partywall_loop_add_channel(loop, pair.server, 7, NULL));
    OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
    for (int round = 0; round < 3; round++) {
        STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
        OK(partywall_channel_send(pair.client, "x", 1, TIMEOUT_NS, NULL));
        OK(partywall_channel_send(pair.client, "y", 1, TIMEOUT_NS, NULL));
        OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
        CHECK(count == 1 && event.tag == 7 && event.kinds == PARTYWALL_READABLE);
        for (int turn = 0; turn < 10; turn++) {
            OK(partywall_loop_wait(loop, &event, 1, &count, 0, NULL));
            CHECK(count == 0);
        }
        OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
        OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
    }
    free_pair(pair);
    OK(partywall_loop_free(loop));
}

/*
 * Events that partywall_loop_poll_awake leaves are written by the next call. After
 * partywall_loop_wait with timeout 0 found none, the loop's descriptor reports later events.
 */
static void awake(const char *address) {
    partywall_loop *loop = NULL;
    partywall_event event;
    struct pollfd above = {.events = POLLIN};
    const void *data = NULL;
    size_t count = 0, len = 0;
    struct pair pair = make_pair(address, NULL);
    OK(partywall_loop_new(&loop, NULL));
    OK(partywall_loop_fd(loop, &above.fd));
    OK(partywall_loop_add_channel(loop, pair.server, 7, NULL));
    for (int round = 0; round < 100; round++) {
        OK(partywall_channel_send(pair.client, "x", 1, TIMEOUT_NS, NULL));
        for (int turn = 0; turn < 3; turn++) {
            do {
                OK(partywall_loop_poll_awake(loop, &event, 1, &count, NULL));
            } while (count == 0);
            CHECK(count == 1 && event.tag == 7 && event.kinds == PARTYWALL_READABLE);
        }
        OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
        STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
        OK(partywall_loop_poll_awake(loop, &event, 1, &count, NULL));
        do {
            OK(partywall_loop_wait(loop, &event, 1, &count, 0, NULL));
        } while (count > 0);
        OK(partywall_channel_send(pair.client, "y", 1, TIMEOUT_NS, NULL));
        CHECK(poll(&above, 1, (int)(TIMEOUT_NS / 1000000)) == 1);
        OK(partywall_loop_wait(loop, &event, 1, &count, TIMEOUT_NS, NULL));
        CHECK(count == 1 && event.tag == 7);
        OK(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL));
        STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_EMPTY);
    }
    free_pair(pair);
    OK(partywall_loop_free(loop));
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    serve(address, -1);
    serve(address, 0);
    serve(address, 1);
    freed(address);
    once(address);
    awake(address);
    return 0;
}
