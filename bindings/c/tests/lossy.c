/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Records that may be lost: each policy for a record without room, the counts of both sides, the
 * end of either side, and misuse.
 */
#include "check.h"

#define RECORDS 5000

static partywall_lossy_stats stats_of(partywall_lossy_sender *sender) {
    partywall_lossy_stats stats;
    OK(partywall_lossy_sender_stats(sender, &stats, sizeof stats));
    return stats;
}

/* Logs numbered records, far more than the ring and the queue have room for. */
static void log_all(partywall_lossy_sender *sender) {
    char record[200] = {0};
    uint64_t outcomes[5] = {0};
    for (uint32_t i = 0; i < RECORDS; i++) {
        int32_t outcome = -1;
        memcpy(record, &i, sizeof i);
        OK(partywall_lossy_log(sender, record, sizeof record, &outcome, NULL));
        CHECK(outcome >= PARTYWALL_LOG_SENT && outcome <= PARTYWALL_LOG_DROPPED_CLOSED);
        outcomes[outcome]++;
    }
    partywall_lossy_stats stats = stats_of(sender);
    CHECK(stats.sent + stats.queued + stats.dropped_full == RECORDS);
    CHECK(outcomes[PARTYWALL_LOG_DROPPED_TOO_LONG] + outcomes[PARTYWALL_LOG_DROPPED_CLOSED] == 0);
    CHECK(outcomes[PARTYWALL_LOG_SENT] > 0 && stats.dropped_full > 0);
}

/*
 * Receives every record up to the end. Checks that the records come in order, and that each says
 * how many were lost before it.
 */
static uint64_t receive_all(partywall_lossy_receiver *receiver, uint32_t *last) {
    uint64_t count = 0, lost = 0, before = 0, received = 0, sum = 0;
    uint32_t next = 0, number = 0;
    const void *data = NULL;
    size_t len = 0;
    for (;;) {
        partywall_message *message = NULL;
        int32_t status;
        if (count % 2 == 0) {
            status = partywall_lossy_recv_view(receiver, &data, &len, &before, TIMEOUT_NS, NULL);
        } else {
            status = partywall_lossy_recv(receiver, &message, &before, TIMEOUT_NS, NULL);
            if (status == PARTYWALL_OK) {
                OK(partywall_message_data(message, &data, &len));
            }
        }
        if (status != PARTYWALL_OK) {
            CHECK(status == PARTYWALL_FINISHED);
            break;
        }
        memcpy(&number, data, sizeof number);
        CHECK(len == 200 && number == next + before);
        next = number + 1;
        count++;
        sum += before;
        OK(partywall_message_free(message));
    }
    OK(partywall_lossy_receiver_counts(receiver, &received, &lost));
    CHECK(received == count && lost >= sum);
    CHECK(received + lost == RECORDS + 1);
    *last = number;
    return lost;
}

static void *free_thread(void *sender) {
    OK(partywall_lossy_sender_free(sender));
    return NULL;
}

static void policy(const char *address, int32_t policy) {
    partywall_config *config = NULL;
    partywall_lossy_sender *sender = NULL;
    partywall_lossy_receiver *receiver = NULL;
    const void *data = NULL;
    size_t len = 0;
    uint32_t last = 0;
    int32_t outcome = -1;
    char late[200] = {0};
    OK(partywall_config_new(&config, NULL));
    OK(partywall_config_set(config, "on_full", (uint64_t)policy, NULL));
    OK(partywall_config_set(config, "on_full_block_ns", 1000, NULL));
    OK(partywall_config_set(config, "queue_records", 50, NULL));
    OK(partywall_config_set(config, "flush_on_drop_ns", TIMEOUT_NS, NULL));
    struct pair pair = make_pair(address, config);
    OK(partywall_lossy_sender_new(pair.client, config, &sender, NULL));
    OK(partywall_lossy_receiver_new(pair.server, &receiver, NULL));
    STATUS(partywall_channel_send(pair.client, "x", 1, 0, NULL), PARTYWALL_FINISHED_HERE);
    STATUS(partywall_channel_recv_view(pair.server, &data, &len, 0, NULL), PARTYWALL_STOPPED_HERE);
    STATUS(partywall_lossy_sender_new(pair.client, config, &sender, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_receiver_new(pair.server, &receiver, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_recv_view(receiver, &data, &len, NULL, 0, NULL), PARTYWALL_EMPTY);
    log_all(sender);
    partywall_lossy_stats stats = stats_of(sender);
    if (policy == PARTYWALL_ON_FULL_DROP_OLDEST) {
        CHECK(stats.queued == 50);
        STATUS(partywall_lossy_flush(sender, 0, NULL), PARTYWALL_FULL);
    } else {
        CHECK(stats.queued == 0);
        OK(partywall_lossy_flush(sender, 0, NULL));
    }
    OK(partywall_lossy_log_wait(sender, late, sizeof late, &outcome, 1000, NULL));
    CHECK(outcome == PARTYWALL_LOG_DROPPED_FULL);
    CHECK(stats_of(sender).dropped_full == stats.dropped_full + 1);

    /* Freeing the sender sends the records in its queue, while another thread receives them. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_thread, sender) == 0);
    uint64_t lost = receive_all(receiver, &last);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(lost == stats.dropped_full + 1);
    CHECK((last == RECORDS - 1) == (policy == PARTYWALL_ON_FULL_DROP_OLDEST));
    STATUS(partywall_lossy_sender_free(sender), PARTYWALL_HANDLE);
    OK(partywall_lossy_receiver_free(receiver));
    STATUS(partywall_lossy_receiver_free(receiver), PARTYWALL_HANDLE);
    free_pair(pair);
    OK(partywall_config_free(config));
}

/*
 * A status of its own says that a message is no record, that a record is longer than any message
 * may be, or that the receiver is gone.
 */
static void ends(const char *address) {
    static char big[100000];
    partywall_config *config = NULL;
    partywall_lossy_sender *sender = NULL;
    partywall_lossy_receiver *receiver = NULL;
    const void *data = NULL;
    size_t len = 0;
    int32_t outcome = 0, is_closed = 1;
    OK(partywall_config_new(&config, NULL));
    OK(partywall_config_set(config, "message_max", 50000, NULL));
    struct pair pair = make_pair(address, config);
    OK(partywall_lossy_receiver_new(pair.server, &receiver, NULL));
    OK(partywall_channel_send(pair.client, "no record", 9, 0, NULL));
    STATUS(partywall_lossy_recv_view(receiver, &data, &len, NULL, TIMEOUT_NS, NULL),
           PARTYWALL_NOT_A_RECORD);
    OK(partywall_lossy_sender_new(pair.client, NULL, &sender, NULL));
    OK(partywall_lossy_log(sender, big, sizeof big, &outcome, NULL));
    CHECK(outcome == PARTYWALL_LOG_DROPPED_TOO_LONG);
    OK(partywall_lossy_sender_is_closed(sender, &is_closed));
    CHECK(is_closed == 0);
    OK(partywall_lossy_receiver_free(receiver));
    do {
        OK(partywall_lossy_log(sender, "x", 1, &outcome, NULL));
    } while (outcome == PARTYWALL_LOG_SENT);
    CHECK(outcome == PARTYWALL_LOG_DROPPED_CLOSED);
    OK(partywall_lossy_sender_is_closed(sender, &is_closed));
    CHECK(is_closed == 1 && stats_of(sender).dropped_closed == 1);
    STATUS(partywall_lossy_flush(sender, 0, NULL), PARTYWALL_FINISHED);
    STATUS(partywall_lossy_flush(sender, TIMEOUT_NS, NULL), PARTYWALL_FINISHED);
    OK(partywall_lossy_sender_free(sender));
    free_pair(pair);
    OK(partywall_config_free(config));
}

static void misuse(const char *address) {
    partywall_lossy_sender *sender = NULL;
    partywall_lossy_receiver *receiver = NULL;
    partywall_lossy_stats stats;
    partywall_message *message = NULL;
    const void *data = NULL;
    size_t len = 0;
    uint64_t count = 0;
    int32_t number = 0;
    struct pair pair = make_pair(address, NULL);
    STATUS(partywall_lossy_sender_new(NULL, NULL, &sender, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_sender_new(pair.client, NULL, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_log(NULL, "x", 1, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_log_wait(NULL, "x", 1, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_flush(NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_sender_stats(NULL, &stats, sizeof stats), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_sender_is_closed(NULL, &number), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_receiver_new(NULL, &receiver, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_receiver_new(pair.server, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_recv_view(NULL, &data, &len, &count, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_recv(NULL, &message, &count, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_receiver_counts(NULL, &count, &count), PARTYWALL_ARGUMENT);
    OK(partywall_lossy_sender_new(pair.client, NULL, &sender, NULL));
    OK(partywall_lossy_receiver_new(pair.server, &receiver, NULL));
    STATUS(partywall_lossy_log(sender, NULL, 1, NULL, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_log_wait(sender, NULL, 1, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_sender_stats(sender, NULL, 8), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_sender_stats(sender, &stats, SIZE_MAX), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_sender_is_closed(sender, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_recv_view(receiver, NULL, &len, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_recv_view(receiver, &data, NULL, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_recv(receiver, NULL, NULL, 0, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_receiver_counts(receiver, &count, NULL), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_receiver_counts(receiver, NULL, &count), PARTYWALL_ARGUMENT);
    STATUS(partywall_lossy_log((partywall_lossy_sender *)receiver, "x", 1, NULL, NULL),
           PARTYWALL_HANDLE);
    OK(partywall_lossy_sender_free(NULL));
    OK(partywall_lossy_receiver_free(NULL));
    OK(partywall_lossy_sender_free(sender));
    OK(partywall_lossy_receiver_free(receiver));
    free_pair(pair);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const char *address = address_in(argv[1]);
    policy(address, PARTYWALL_ON_FULL_DROP_NEWEST);
    policy(address, PARTYWALL_ON_FULL_DROP_OLDEST);
    policy(address, PARTYWALL_ON_FULL_BLOCK);
    ends(address);
    misuse(address);
    return 0;
}
