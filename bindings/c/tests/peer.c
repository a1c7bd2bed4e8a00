/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer process in C, for tests that kill, stop or fork it. Its arguments: a directory, the name
 * of its part in the test, and an address. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGES 100

static void echo(partywall_channel *channel) {
    const void *data = NULL;
    size_t len = 0;
    int32_t status;
    while ((status = partywall_channel_recv_view(channel, &data, &len, -1, NULL)) == 0) {
        OK(partywall_channel_send(channel, data, len, -1, NULL));
    }
    CHECK(status == PARTYWALL_FINISHED);
}

/*
 * In a forked child each call on an object of the parent returns PARTYWALL_FORKED, and in the
 * parent the objects go on.
 */
static void fork_once(partywall_channel *channel) {
    const void *view = NULL;
    void *data = NULL;
    size_t len = 0;
    int status = 0;
    partywall_reservation *reservation = NULL, *none = NULL;
    OK(partywall_channel_reserve(channel, 5000, &data, &reservation, 0, NULL));
    partywall_loop *loop = NULL;
    partywall_link_group *group = NULL;
    partywall_event event;
    OK(partywall_loop_new(&loop, NULL));
    OK(partywall_link_group_new(&group, NULL));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        STATUS(partywall_channel_send(channel, "x", 1, 0, NULL), PARTYWALL_FORKED);
        STATUS(partywall_channel_send(channel, "x", 1, -1, NULL), PARTYWALL_FORKED);
        STATUS(partywall_channel_recv_view(channel, &view, &len, 0, NULL), PARTYWALL_FORKED);
        STATUS(partywall_channel_reserve(channel, 5, &data, &none, 0, NULL), PARTYWALL_FORKED);
        STATUS(partywall_loop_wait(loop, &event, 1, &len, -1, NULL), PARTYWALL_FORKED);
        STATUS(partywall_loop_wait(loop, &event, 1, &len, 0, NULL), PARTYWALL_FORKED);
        STATUS(partywall_loop_add_links(loop, group, 1, NULL), PARTYWALL_FORKED);
        STATUS(partywall_link_group_poll(group, &len, -1, NULL), PARTYWALL_FORKED);
        STATUS(partywall_link_group_poll(group, &len, 0, NULL), PARTYWALL_FORKED);
        /*
         * The reserved memory is not mapped in the child, so the library panics before it touches
         * the memory.
         */
        STATUS(partywall_reservation_data(reservation, &data, &len), PARTYWALL_PANIC);
        STATUS(partywall_reservation_data(reservation, &data, &len), PARTYWALL_PANIC);
        OK(partywall_reservation_abort(reservation));
        OK(partywall_channel_free(channel));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(partywall_loop_add_links(loop, group, 1, NULL));
    OK(partywall_loop_wait(loop, &event, 1, &len, 0, NULL));
    OK(partywall_link_group_free(group));
    OK(partywall_loop_free(loop));
    memset(data, 'f', 5000);
    OK(partywall_channel_commit(channel, reservation, TIMEOUT_NS, NULL));
}

int main(int argc, char **argv) {
    partywall_channel *channel = NULL;
    CHECK(argc > 3);
    OK(partywall_connect(argv[3], NULL, &channel, NULL));
    if (strcmp(argv[2], "killed") == 0) {
        for (uint32_t i = 0; i < MESSAGES; i++) {
            OK(partywall_channel_send(channel, &i, sizeof i, TIMEOUT_NS, NULL));
        }
        raise(SIGKILL);
    } else if (strcmp(argv[2], "stopped") == 0) {
        raise(SIGSTOP);
    } else {
        fork_once(channel);
    }
    echo(channel);
    OK(partywall_channel_free(channel));
    return 0;
}
