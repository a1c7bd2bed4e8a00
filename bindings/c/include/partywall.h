/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * partywall.h: messages between two Linux processes through shared memory.
 *
 * Status. Every function that returns int32_t, but for partywall_error_code and
 * partywall_error_errno, returns 0 (PARTYWALL_OK) or the number of a cause. The numbers are those of
 * spec/SPEC.md, section 17, in every language. They keep their meaning in every version.
 *
 * Errors. The last argument `error` may be NULL. Otherwise the function writes NULL there, or an
 * error object whose text says what to do; free it with partywall_error_free. The states from
 * PARTYWALL_TIMED_OUT to PARTYWALL_FINISHED have no error object. Other results are written only if
 * the status is PARTYWALL_OK, unless a function says more.
 *
 * Timeouts. `timeout_ns` is a number of nanoseconds. 0 never waits, and a negative number waits
 * without a limit.
 *
 * Objects. A pointer to an object is a handle, which the library never follows. A handle that was
 * freed, belongs to another type or was never made gives PARTYWALL_HANDLE. A null handle gives
 * PARTYWALL_ARGUMENT, or PARTYWALL_OK where it is to be freed. An object that another call uses at
 * this moment gives PARTYWALL_BUSY, also where it is to be freed.
 *
 * Threads. One thread may send on a channel or stream while another receives from it. Any number may
 * call a session or link, its client or its server, or the functions of a loop that do not wait.
 * Every other object takes one call at a time, from any thread.
 *
 * Pointers. Every other pointer that is not NULL must be valid for the call and the length passed
 * with it. Texts are UTF-8 and end with a zero byte.
 */
#ifndef PARTYWALL_H
#define PARTYWALL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct partywall_call partywall_call;
typedef struct partywall_calls_client partywall_calls_client;
typedef struct partywall_calls_server partywall_calls_server;
typedef struct partywall_channel partywall_channel;
typedef struct partywall_config partywall_config;
typedef struct partywall_error partywall_error;
typedef struct partywall_link partywall_link;
typedef struct partywall_link_client partywall_link_client;
typedef struct partywall_link_config partywall_link_config;
typedef struct partywall_link_group partywall_link_group;
typedef struct partywall_link_message partywall_link_message;
typedef struct partywall_link_server partywall_link_server;
typedef struct partywall_listener partywall_listener;
typedef struct partywall_loop partywall_loop;
typedef struct partywall_lossy_receiver partywall_lossy_receiver;
typedef struct partywall_lossy_sender partywall_lossy_sender;
typedef struct partywall_message partywall_message;
typedef struct partywall_request partywall_request;
typedef struct partywall_reservation partywall_reservation;
typedef struct partywall_session partywall_session;
typedef struct partywall_session_listener partywall_session_listener;
typedef struct partywall_shmipc partywall_shmipc;
typedef struct partywall_shmipc_config partywall_shmipc_config;
typedef struct partywall_stream partywall_stream;

/* Statuses that programs compare with. partywall_status_text explains these and all others. */
#define PARTYWALL_OK 0
#define PARTYWALL_FORKED 1
#define PARTYWALL_SYSTEM 2
#define PARTYWALL_TIMED_OUT 4
#define PARTYWALL_FULL 5
#define PARTYWALL_EMPTY 6
#define PARTYWALL_WOULD_BLOCK 7
#define PARTYWALL_BUSY 8
#define PARTYWALL_FINISHED 9
#define PARTYWALL_DISCONNECTED 10
#define PARTYWALL_MESSAGE_TOO_LONG 11
#define PARTYWALL_SETTING 13
#define PARTYWALL_FOREIGN_RESERVATION 14
#define PARTYWALL_REFUSED_BY_THE_PEER 205
#define PARTYWALL_NOT_ADMITTED 206
#define PARTYWALL_ADDRESS_SYNTAX 301
#define PARTYWALL_ADDRESS_IN_USE 311
#define PARTYWALL_NO_SOCKET 332
#define PARTYWALL_NO_LISTENER 333
#define PARTYWALL_CONNECTING_DENIED 335
#define PARTYWALL_STREAM_STOPPED 406
#define PARTYWALL_STREAM_RESET 407
#define PARTYWALL_FINISHED_HERE 408
#define PARTYWALL_STOPPED_HERE 409
#define PARTYWALL_SESSION_CLOSED_BY_THE_PEER 411
#define PARTYWALL_LINK_BUSY 527
#define PARTYWALL_NOT_A_RECORD 701
#define PARTYWALL_CALL_FAILED 711
#define PARTYWALL_CALL_REFUSED 712
#define PARTYWALL_CALL_ABORTED 713
#define PARTYWALL_ARGUMENT 901
#define PARTYWALL_HANDLE 902
#define PARTYWALL_PANIC 903
#define PARTYWALL_BUFFER_TOO_SHORT 904
#define PARTYWALL_HANDLES_EXHAUSTED 905

/* Returns the version of the library, such as "0.1.0". */
const char *partywall_version(void);
/* Returns the number of the binary interface. If it changes, programs have to be compiled again. */
uint32_t partywall_abi(void);
/*
 * Returns the text of a status, for programs that pass no place for an error object. An error
 * object says more: whom the failure concerns, and what to do.
 */
const char *partywall_status_text(int32_t status);

/* Returns the text of an error, which stays valid until the error is freed. */
const char *partywall_error_message(partywall_error *error);
/*
 * Returns the number of an error, which is also the status that the failed call returned; 0 for no
 * error.
 */
int32_t partywall_error_code(partywall_error *error);
/* Returns the code that the peer's application gave to end a stream or session, or 0. */
uint32_t partywall_error_application_code(partywall_error *error);
/* Returns the errno of the system call behind an error, or 0. */
int32_t partywall_error_errno(partywall_error *error);
/* Frees an error. NULL is allowed. */
int32_t partywall_error_free(partywall_error *error);

/*
 * Keys of partywall_config_set, with their defaults:
 *
 *   transport                 PARTYWALL_TRANSPORT_AUTO
 *   begin                     PARTYWALL_BEGIN_AUTO: sessions on the socket, channels in memory
 *   back_pressure             PARTYWALL_BACK_PRESSURE_BLOCK
 *   trust                     PARTYWALL_TRUST_AUTO
 *   wait                      PARTYWALL_WAIT_ADAPTIVE
 *   poll_period_ns            none: polls once per period instead of waiting as `wait` says
 *   spin_budget_ns            50000
 *   handshake_timeout_ns      5000000000
 *   handshakes_max            64
 *   backlog                   128
 *   ring_bytes                65536: a power of two
 *   peer_blocks_max           1024: a power of two
 *   memory_max                67108864 bytes
 *   message_max               memory_max
 *   map_max                   memory_max plus 1 MiB
 *   segments_max              32
 *   inline_max                1024 bytes
 *   idle_memory_timeout_ns    5000000000
 *   stream_window             262144 bytes
 *   streams_max               1024
 *   linger_ns                 5000000000
 *   socket_mode               0600
 *   allow_remote              0
 *
 * Of senders of records that may be lost:
 *
 *   on_full                   PARTYWALL_ON_FULL_DROP_NEWEST
 *   on_full_block_ns          0: longest wait of PARTYWALL_ON_FULL_BLOCK
 *   queue_records             1024: most records that PARTYWALL_ON_FULL_DROP_OLDEST queues
 *   queue_bytes               1048576: most bytes of these records
 *   flush_on_drop_ns          100000000: longest wait of freeing a sender
 *
 * Of calls:
 *
 *   in_flight_max             1024: most calls of a client without an answer; further ones wait
 *   waiting_max               1024: most calls that wait for a server; further ones are refused
 */
#define PARTYWALL_TRANSPORT_AUTO 0
#define PARTYWALL_TRANSPORT_SHARED_MEMORY 1
#define PARTYWALL_TRANSPORT_SOCKET 2
#define PARTYWALL_BEGIN_SHARED_MEMORY 0
#define PARTYWALL_BEGIN_SOCKET 1
#define PARTYWALL_BEGIN_AUTO 2
#define PARTYWALL_BACK_PRESSURE_BLOCK 0
#define PARTYWALL_BACK_PRESSURE_ERROR 1
#define PARTYWALL_BACK_PRESSURE_OVERFLOW 2
#define PARTYWALL_TRUST_AUTO 0
#define PARTYWALL_TRUST_OWN_USER 1
#define PARTYWALL_TRUST_TRUSTED 2
#define PARTYWALL_TRUST_UNTRUSTED 3
#define PARTYWALL_WAIT_ADAPTIVE 0
#define PARTYWALL_WAIT_SPIN 1
#define PARTYWALL_WAIT_PARK 2
#define PARTYWALL_ON_FULL_DROP_NEWEST 0
#define PARTYWALL_ON_FULL_DROP_OLDEST 1
#define PARTYWALL_ON_FULL_BLOCK 2

/* Makes a configuration with the default settings. A call that takes a configuration copies it. */
int32_t partywall_config_new(partywall_config **config, partywall_error **error);
/* Makes a copy of a configuration, which can be changed without changing the original. */
int32_t partywall_config_copy(partywall_config *config, partywall_config **copy,
                              partywall_error **error);
/* Frees a configuration. NULL is allowed. */
int32_t partywall_config_free(partywall_config *config);
/*
 * Sets one setting of a configuration. PARTYWALL_ARGUMENT: there is no setting of the name `key`.
 * PARTYWALL_SETTING: the value is impossible; some values are checked only when the configuration
 * is used.
 */
int32_t partywall_config_set(partywall_config *config, const char *key, uint64_t value,
                             partywall_error **error);
/*
 * Makes a listener admit processes of the user `uid`, or of the primary group `gid`. All processes
 * are refused that no such call admits. Without such a call, every process is admitted that may
 * open the address.
 */
int32_t partywall_config_admit_user(partywall_config *config, uint32_t uid);
int32_t partywall_config_admit_group(partywall_config *config, uint32_t gid);

/*
 * Structures that a call fills. The caller passes the size that the structure has in the header
 * with which it was compiled; a later version may add fields at the end. PARTYWALL_ARGUMENT: the
 * size is larger than any object in memory can be.
 */

/*
 * The process of the peer, as the kernel attests it. If the kernel attests none, as over TCP, the
 * pid, uid and gid are 0. `distrust` says why the peer is not trusted, with a number such as
 * PARTYWALL_DISTRUST_POLICY; it is 0 if the peer is trusted. A later version may have other
 * reasons.
 */
typedef struct partywall_peer {
    int32_t has_credentials;
    int32_t pid;
    uint32_t uid;
    uint32_t gid;
    int32_t is_trusted;
    int32_t distrust;
} partywall_peer;

#define PARTYWALL_DISTRUST_POLICY 1
#define PARTYWALL_DISTRUST_NO_CREDENTIALS 2
#define PARTYWALL_DISTRUST_OTHER_USER 3
#define PARTYWALL_DISTRUST_OTHER_PID_NAMESPACE 4
#define PARTYWALL_DISTRUST_OTHER_USER_NAMESPACE 5
#define PARTYWALL_DISTRUST_UNKNOWN_NAMESPACES 6
#define PARTYWALL_DISTRUST_NO_PROCESS 7

/*
 * A connection's transport is PARTYWALL_TRANSPORT_SHARED_MEMORY, PARTYWALL_TRANSPORT_SOCKET, or
 * PARTYWALL_TRANSPORT_PROTOCOL: a protocol other than Partywall's own, such as shmipc.
 */
#define PARTYWALL_TRANSPORT_PROTOCOL 3

/* Reasons why a connection uses a socket. A peer of a later version may send other numbers. */
#define PARTYWALL_REASON_POLICY 1
#define PARTYWALL_REASON_REMOTE 2
#define PARTYWALL_REASON_MEMFD 3
#define PARTYWALL_REASON_MEMORY 4
#define PARTYWALL_REASON_DESCRIPTORS 5
#define PARTYWALL_REASON_LIMITS 6
#define PARTYWALL_REASON_MAP 7
#define PARTYWALL_REASON_NOT_MOVED 8
#define PARTYWALL_REASON_ABANDONED 9

/*
 * Counters of a sending direction. Of the messages, `zero_copy` were read where the sender wrote
 * them, and `overflows` went through the ring because the memory for long messages had no room.
 * `memory_bytes` are allocated for long messages now. Of these bytes, `memory_used_bytes` are
 * reserved or held by the receiver, in `blocks_in_flight` messages. Over a socket,
 * `memory_used_bytes` are the bytes that the kernel has not taken yet.
 */
typedef struct partywall_sender_stats {
    uint64_t messages;
    uint64_t bytes;
    uint64_t zero_copy;
    uint64_t overflows;
    uint64_t wakeups_sent;
    uint64_t sleeps;
    uint64_t memory_bytes;
    uint64_t memory_used_bytes;
    uint64_t blocks_in_flight;
} partywall_sender_stats;

/*
 * Counters of a receiving direction. A spin hit is a message that arrived while the receiver was
 * spinning, so that it did not have to sleep.
 */
typedef struct partywall_receiver_stats {
    uint64_t messages;
    uint64_t bytes;
    uint64_t zero_copy;
    uint64_t wakeups_sent;
    uint64_t sleeps;
    uint64_t spin_hits;
} partywall_receiver_stats;

/*
 * Listens for channels at `address`: "unix:/path", "unix:@name" or "tcp:host:port". If `config` is
 * NULL, the default settings are used.
 */
int32_t partywall_listener_bind(const char *address, partywall_config *config,
                                partywall_listener **listener, partywall_error **error);
/* Stops listening, removes the socket file and frees the listener. NULL is allowed. */
int32_t partywall_listener_free(partywall_listener *listener);
/*
 * Returns the next channel that a peer has opened. PARTYWALL_TIMED_OUT: none was established in
 * time.
 */
int32_t partywall_listener_accept(partywall_listener *listener, partywall_channel **channel,
                                  int64_t timeout_ns, partywall_error **error);
/*
 * Copies the address that the listener is bound to, without a zero byte at its end, and writes its
 * length to `*len`. If the listener was bound to port 0, the address has the port that the system
 * chose. PARTYWALL_BUFFER_TOO_SHORT: only `*len` is written.
 */
int32_t partywall_listener_address(partywall_listener *listener, void *buffer, size_t capacity,
                                   size_t *len, partywall_error **error);

/*
 * Writes the listener's descriptor, which is readable while partywall_listener_accept with timeout
 * 0 may have a channel to return or a handshake to continue. Never read from the descriptor, and
 * never close it.
 */
int32_t partywall_listener_fd(partywall_listener *listener, int32_t *fd, partywall_error **error);

/*
 * Opens a channel with the listener at `address`. `config` may be NULL. Waits for the handshake, at
 * most for the setting handshake_timeout_ns.
 */
int32_t partywall_connect(const char *address, partywall_config *config,
                          partywall_channel **channel, partywall_error **error);
/*
 * Ends both directions and frees the channel. The peer receives every sent message, then
 * PARTYWALL_FINISHED. Views that the channel returned end; received messages that the program owns
 * stay. NULL is allowed.
 */
int32_t partywall_channel_free(partywall_channel *channel);

/*
 * Sends a copy of `len` bytes. `data` may be NULL if `len` is 0. PARTYWALL_FULL: there is no room
 * for the message now. PARTYWALL_TIMED_OUT: there was no room in time. PARTYWALL_FINISHED,
 * PARTYWALL_DISCONNECTED: the peer does not receive any more.
 *
 * Over a socket, the kernel may have taken only a part of the message when the call returns
 * PARTYWALL_OK. The next call that sends, partywall_channel_flush or freeing the channel writes the
 * rest of the message. Without such a call the peer waits for the rest.
 */
int32_t partywall_channel_send(partywall_channel *channel, const void *data, size_t len,
                               int64_t timeout_ns, partywall_error **error);
/*
 * Reserves memory for a message of `len` bytes, which the caller writes at `*data` and then commits
 * or aborts. Any thread may write the bytes. A forked child must not touch them.
 */
int32_t partywall_channel_reserve(partywall_channel *channel, size_t len, void **data,
                                  partywall_reservation **reservation, int64_t timeout_ns,
                                  partywall_error **error);
/*
 * Sends the message in `reservation`, which this channel reserved, and frees the reservation. The
 * reservation stays the caller's only on PARTYWALL_FULL, PARTYWALL_FOREIGN_RESERVATION,
 * PARTYWALL_FINISHED_HERE, PARTYWALL_ARGUMENT, PARTYWALL_HANDLE of the channel, and PARTYWALL_BUSY.
 * On every other failure partywall_reservation_abort is allowed, and may return PARTYWALL_HANDLE.
 */
int32_t partywall_channel_commit(partywall_channel *channel, partywall_reservation *reservation,
                                 int64_t timeout_ns, partywall_error **error);
/*
 * Waits until the kernel has taken the bytes of all sent messages. Over shared memory the kernel
 * takes no bytes, so the call returns at once.
 */
int32_t partywall_channel_flush(partywall_channel *channel, int64_t timeout_ns,
                                partywall_error **error);
/*
 * Prepares the channel for waiting for room by poll or epoll, after PARTYWALL_FULL: writes a
 * descriptor that becomes readable once there may be room, or -1 if there may be room now. Then
 * send again. Never read from the descriptor, and never close it.
 */
int32_t partywall_channel_arm_send(partywall_channel *channel, int32_t *fd,
                                   partywall_error **error);
/*
 * Prepares the channel for waiting for a message by poll or epoll, after PARTYWALL_EMPTY: writes a
 * descriptor that becomes readable once there may be a message, or -1 if there may be one now. Then
 * receive again. Never read from the descriptor, and never close it.
 */
int32_t partywall_channel_arm_recv(partywall_channel *channel, int32_t *fd,
                                   partywall_error **error);
/*
 * Waits after PARTYWALL_EMPTY, without polling, until there may be a message or another thread
 * calls partywall_channel_wake. Then receive again. During the wait no other thread may receive, or
 * add the channel to a loop; short calls of other threads, such as those for counters, do not wait.
 * A wake-up shortly before the timeout may end as PARTYWALL_TIMED_OUT, so after every status the
 * program looks at whatever the other thread has set for it before the wake-up. PARTYWALL_ARGUMENT:
 * the channel did not begin over shared memory, or is in a loop: wait by
 * partywall_channel_arm_recv, or by the loop.
 */
int32_t partywall_channel_wait_recv(partywall_channel *channel, int64_t timeout_ns,
                                    partywall_error **error);
/*
 * Ends a wait in partywall_channel_wait_recv of another thread, or the next such wait if no thread
 * waits now. Any thread may call it. PARTYWALL_ARGUMENT: the channel did not begin over shared
 * memory.
 */
int32_t partywall_channel_wake(partywall_channel *channel, partywall_error **error);
/* Ends the channel's sending direction. The channel still receives the peer's messages. */
int32_t partywall_channel_close_write(partywall_channel *channel, partywall_error **error);

/*
 * Receives the next message as a view, without a copy: `*data` is valid until the next receiving
 * call of the channel, or until the channel is freed. PARTYWALL_EMPTY: there is no message now.
 * PARTYWALL_FINISHED: the peer has ended its sending, and every message was received.
 * PARTYWALL_DISCONNECTED: the peer died; its messages were received before.
 */
int32_t partywall_channel_recv_view(partywall_channel *channel, const void **data, size_t *len,
                                    int64_t timeout_ns, partywall_error **error);
/*
 * Receives a copy of the next message, and writes its length to `*len`. PARTYWALL_BUFFER_TOO_SHORT:
 * `*len` is written, and the next receiving call returns the same message.
 */
int32_t partywall_channel_recv_copy(partywall_channel *channel, void *buffer, size_t capacity,
                                    size_t *len, int64_t timeout_ns, partywall_error **error);
/* Receives the next message as an object that the caller owns. A long message is not copied. */
int32_t partywall_channel_recv(partywall_channel *channel, partywall_message **message,
                               int64_t timeout_ns, partywall_error **error);
/* Makes the message of the last view an object that the caller owns. The view ends. */
int32_t partywall_channel_keep(partywall_channel *channel, partywall_message **message,
                               partywall_error **error);
/*
 * Makes the event loop stop reporting the channel as readable until the next receiving call. A
 * program that takes no messages for a while would otherwise get that event from every call that
 * waits for events.
 */
int32_t partywall_channel_pause(partywall_channel *channel, partywall_error **error);

/* Writes what is known of the peer process. `size` is sizeof(partywall_peer). */
int32_t partywall_channel_peer(partywall_channel *channel, partywall_peer *peer, size_t size);
/*
 * Copies a description of the channel's peer for logs, without a zero byte at its end, and writes
 * its length to `*len`. PARTYWALL_BUFFER_TOO_SHORT: only `*len` is written.
 */
int32_t partywall_channel_peer_text(partywall_channel *channel, void *buffer, size_t capacity,
                                    size_t *len, partywall_error **error);
/*
 * Writes the transport that the channel has now, and the reason why memory is not shared. The
 * reason is 0 unless the transport is PARTYWALL_TRANSPORT_SOCKET.
 */
int32_t partywall_channel_transport(partywall_channel *channel, int32_t *transport,
                                    uint32_t *reason);
/*
 * Copies a description of the channel's transport for logs, with the reason why memory is not
 * shared.
 */
int32_t partywall_channel_transport_text(partywall_channel *channel, void *buffer,
                                         size_t capacity, size_t *len, partywall_error **error);
/*
 * Writes the counters of the sending or the receiving direction of a channel. PARTYWALL_BUSY:
 * another call uses that direction.
 */
int32_t partywall_channel_sender_stats(partywall_channel *channel, partywall_sender_stats *stats,
                                       size_t size);
int32_t partywall_channel_receiver_stats(partywall_channel *channel,
                                         partywall_receiver_stats *stats, size_t size);

/*
 * Senders and receivers of logs, traces and samples: such records may be lost, so their sender
 * never waits for its receiver. spec/RECORDS.md has the bytes.
 */

/* What became of a record that was logged, as partywall_lossy_log writes it. */
#define PARTYWALL_LOG_SENT 0
#define PARTYWALL_LOG_QUEUED 1
#define PARTYWALL_LOG_DROPPED_FULL 2
#define PARTYWALL_LOG_DROPPED_TOO_LONG 3
#define PARTYWALL_LOG_DROPPED_CLOSED 4

/*
 * Counters of a sender of records that may be lost: their sum is the number of records that were
 * logged.
 */
typedef struct partywall_lossy_stats {
    uint64_t sent;
    uint64_t queued;
    uint64_t dropped_full;
    uint64_t dropped_too_long;
    uint64_t dropped_closed;
} partywall_lossy_stats;

/*
 * Makes a sender of records that may be lost from the sending direction of a channel that is in no
 * loop. Any number of threads may call the sender. The channel keeps its receiving direction.
 * `config` may be NULL.
 */
int32_t partywall_lossy_sender_new(partywall_channel *channel, partywall_config *config,
                                   partywall_lossy_sender **sender, partywall_error **error);
/*
 * Sends the records in the sender's queue, waits for that at most `flush_on_drop_ns`, and frees the
 * sender. NULL is allowed.
 */
int32_t partywall_lossy_sender_free(partywall_lossy_sender *sender);
/*
 * Logs a record, and writes what became of it, PARTYWALL_LOG_SENT and so on, to `*outcome`.
 * `outcome` may be NULL. The call waits only if the sender was made with PARTYWALL_ON_FULL_BLOCK.
 */
int32_t partywall_lossy_log(partywall_lossy_sender *sender, const void *data, size_t len,
                            int32_t *outcome, partywall_error **error);
/*
 * Logs an important record: waits for room under every policy, and sends the record after those in
 * the sender's queue.
 */
int32_t partywall_lossy_log_wait(partywall_lossy_sender *sender, const void *data, size_t len,
                                 int32_t *outcome, int64_t timeout_ns, partywall_error **error);
/*
 * Sends the records in the sender's queue and the count of lost records. With timeout 0 it never
 * waits, and returns PARTYWALL_FULL if records stay queued. PARTYWALL_FINISHED,
 * PARTYWALL_DISCONNECTED: the receiver is gone, so the records in the queue are lost.
 */
int32_t partywall_lossy_flush(partywall_lossy_sender *sender, int64_t timeout_ns,
                              partywall_error **error);
/* Writes the counters of a sender of records. */
int32_t partywall_lossy_sender_stats(partywall_lossy_sender *sender, partywall_lossy_stats *stats,
                                     size_t size);
/*
 * Writes 1 if the receiver is gone, so that the sender drops every record, else 0. After 1, connect
 * anew.
 */
int32_t partywall_lossy_sender_is_closed(partywall_lossy_sender *sender, int32_t *is_closed);

/*
 * Makes a receiver of records that may be lost from the receiving direction of a channel that is in
 * no loop.
 */
int32_t partywall_lossy_receiver_new(partywall_channel *channel,
                                     partywall_lossy_receiver **receiver, partywall_error **error);
/* Ends the receiving direction of the channel, and frees the receiver. NULL is allowed. */
int32_t partywall_lossy_receiver_free(partywall_lossy_receiver *receiver);
/*
 * Receives the next record as a view, which is valid until the next receiving call, and writes how
 * many records were lost before it. `lost_before` may be NULL. PARTYWALL_NOT_A_RECORD: the peer
 * sent a message that is no record. It counts as received, and the next call receives what follows.
 */
int32_t partywall_lossy_recv_view(partywall_lossy_receiver *receiver, const void **data,
                                  size_t *len, uint64_t *lost_before, int64_t timeout_ns,
                                  partywall_error **error);
/* Receives the next record as an object that the caller owns. */
int32_t partywall_lossy_recv(partywall_lossy_receiver *receiver, partywall_message **message,
                             uint64_t *lost_before, int64_t timeout_ns, partywall_error **error);
/*
 * Writes how many records the receiver has received so far, and how many the sender has reported as
 * lost.
 */
int32_t partywall_lossy_receiver_counts(partywall_lossy_receiver *receiver, uint64_t *received,
                                        uint64_t *lost);

/* Writes where the bytes of a message lie. They stay valid until the message is freed. */
int32_t partywall_message_data(partywall_message *message, const void **data, size_t *len);
/* Writes 1 if the message's bytes lie in shared memory of its sender, 0 if they were copied. */
int32_t partywall_message_is_zero_copy(partywall_message *message, int32_t *is_zero_copy);
/* Frees a message, in any thread, also after its channel was freed. NULL is allowed. */
int32_t partywall_message_free(partywall_message *message);

/* Writes the address of the reserved bytes and their number. */
int32_t partywall_reservation_data(partywall_reservation *reservation, void **data, size_t *len);
/* Shortens the message to `len` bytes, if it is longer. */
int32_t partywall_reservation_truncate(partywall_reservation *reservation, size_t len);
/* Frees a reservation, in any thread, without sending the message. NULL is allowed. */
int32_t partywall_reservation_abort(partywall_reservation *reservation);

/* Event: there may be a message to receive, or a channel to accept. Reported
 * until a receiving or accepting call finds none. */
#define PARTYWALL_READABLE 1
/* Event: there may be room to send. Reported once after a call returned PARTYWALL_FULL. */
#define PARTYWALL_WRITABLE 2
/* Event: there may be a stream or a session to accept. Reported until an accepting call finds
 * none. */
#define PARTYWALL_OPENED 4
/* Event: the peer has ended its sending direction, or the session is over. Reported once. */
#define PARTYWALL_ENDED 8

/*
 * An event: the tag of an object, and a set of kinds such as PARTYWALL_READABLE. A loop may report
 * an event although the object has nothing.
 */
typedef struct partywall_event {
    uint64_t tag;
    uint32_t kinds;
    uint32_t reserved;
} partywall_event;

/* Makes an event loop without objects. */
int32_t partywall_loop_new(partywall_loop **loop, partywall_error **error);
/*
 * Makes an event loop that reports each kind of an object's events once, and again only after a
 * call on the object has found no message, no room, or nothing to accept. Groups of links are
 * reported as in any loop.
 */
int32_t partywall_loop_new_once(partywall_loop **loop, partywall_error **error);
/*
 * Frees a loop. Its objects stay, but no loop reports their events any more. NULL is allowed. If a
 * channel of the loop was freed while its socket had not taken all bytes of sent messages, the call
 * waits for the socket, at most until 1 s after the channel was freed.
 */
int32_t partywall_loop_free(partywall_loop *loop);
/*
 * Writes the loop's descriptor, with which another event loop waits for this one. When the
 * descriptor is readable, call partywall_loop_wait with timeout 0; if the other loop is
 * edge-triggered, call it until it writes fewer events than `capacity`. Never read from the
 * descriptor, and never close it.
 */
int32_t partywall_loop_fd(partywall_loop *loop, int32_t *fd);
/*
 * Adds both directions of a channel to the loop. The events of both carry `tag`; one event is never
 * of both directions. From then on the calls of the channel take only timeout 0. Freeing the
 * channel removes it from the loop.
 */
int32_t partywall_loop_add_channel(partywall_loop *loop, partywall_channel *channel, uint64_t tag,
                                   partywall_error **error);
/*
 * Adds a listener to the loop, which reports `tag` while there may be a channel to accept. From
 * then on accepting takes only timeout 0. Freeing the listener removes it from the loop.
 */
int32_t partywall_loop_add_listener(partywall_loop *loop, partywall_listener *listener,
                                    uint64_t tag, partywall_error **error);
/*
 * Waits until objects of the loop have events. Writes at most `capacity` of the events to `events`,
 * and their number to `*count`, which is 0 if no object had an event in time.
 */
int32_t partywall_loop_wait(partywall_loop *loop, partywall_event *events, size_t capacity,
                            size_t *count, int64_t timeout_ns, partywall_error **error);
/*
 * Writes the events that objects of the loop have now, at most `capacity`, and never waits. It is
 * for a thread that calls again before it waits: meanwhile peers do not notify the loop, and the
 * loop's descriptor may stay quiet. Before the thread waits for the descriptor, level-triggered, it
 * calls partywall_loop_wait with timeout 0 until that writes no event.
 */
int32_t partywall_loop_poll_awake(partywall_loop *loop, partywall_event *events, size_t capacity,
                                  size_t *count, partywall_error **error);
/*
 * Writes after how many nanoseconds to call partywall_loop_wait although the loop's descriptor is
 * not readable; -1 if no timer is set. A program that watches the descriptor need not ask: it
 * becomes readable for timers, too.
 */
int32_t partywall_loop_next_timer(partywall_loop *loop, int64_t *timeout_ns);

/*
 * Listens for sessions at `address`. If `loop` is NULL, each session has a thread of its own, and
 * its calls may wait. Otherwise the loop drives the listener and its sessions, reports `tag` with
 * PARTYWALL_OPENED for the listener, and their calls take only timeout 0.
 */
int32_t partywall_session_listener_bind(const char *address, partywall_config *config,
                                        partywall_loop *loop, uint64_t tag,
                                        partywall_session_listener **listener,
                                        partywall_error **error);
/* Stops listening, removes the socket file and frees the listener. NULL is allowed. */
int32_t partywall_session_listener_free(partywall_session_listener *listener);
/*
 * Returns the next session that a peer has opened. In a loop the session reports `tag`.
 * PARTYWALL_TIMED_OUT: none came in time.
 */
int32_t partywall_session_listener_accept(partywall_session_listener *listener, uint64_t tag,
                                          partywall_session **session, int64_t timeout_ns,
                                          partywall_error **error);
/*
 * Copies the address that the listener is bound to, without a zero byte at its end, and writes its
 * length to `*len`. PARTYWALL_BUFFER_TOO_SHORT: only `*len` is written.
 */
int32_t partywall_session_listener_address(partywall_session_listener *listener, void *buffer,
                                           size_t capacity, size_t *len, partywall_error **error);
/*
 * Opens a session with the listener at `address`. If `loop` is not NULL, that loop drives the
 * session and reports `tag` for it. Waits for the handshake.
 */
int32_t partywall_session_connect(const char *address, partywall_config *config,
                                  partywall_loop *loop, uint64_t tag, partywall_session **session,
                                  partywall_error **error);
/*
 * Frees the handle of a session. The session lives on while it has streams, and ends in good order
 * after the last of them. NULL is allowed.
 */
int32_t partywall_session_free(partywall_session *session);
/*
 * Opens a stream, with `len` bytes of metadata for the peer. In a loop the stream reports `tag`.
 * PARTYWALL_WOULD_BLOCK: as many streams are open as the peer allows, or room is lacking.
 */
int32_t partywall_session_open(partywall_session *session, const void *metadata, size_t len,
                               uint64_t tag, partywall_stream **stream, int64_t timeout_ns,
                               partywall_error **error);
/*
 * Returns the next stream that the peer has opened. In a loop the stream reports `tag`.
 * PARTYWALL_WOULD_BLOCK: there is no such stream now. PARTYWALL_FINISHED: the session was closed.
 */
int32_t partywall_session_accept(partywall_session *session, uint64_t tag,
                                 partywall_stream **stream, int64_t timeout_ns,
                                 partywall_error **error);
/* Asks the peer to open no more streams in the session, and sends it the application's code. */
int32_t partywall_session_go_away(partywall_session *session, uint32_t code,
                                  partywall_error **error);
/*
 * Ends the session with all its streams. The peer receives the application's code, which is below
 * 0xffffff00, and the text of the reason.
 */
int32_t partywall_session_close(partywall_session *session, uint32_t code, const char *reason,
                                partywall_error **error);
/* Waits until every stream of the session has ended. PARTYWALL_TIMED_OUT: some streams have not. */
int32_t partywall_session_wait_drained(partywall_session *session, int64_t timeout_ns,
                                       partywall_error **error);
/*
 * Waits until the session is over, and writes the number of the reason to `*reason`: for example
 * PARTYWALL_FINISHED, PARTYWALL_DISCONNECTED, or 411 if the peer closed the session with a code or
 * text. `cause` may be NULL; otherwise `*cause` becomes an error object with the text and the
 * application code, or NULL for a state such as PARTYWALL_FINISHED. PARTYWALL_TIMED_OUT: the
 * session is not over.
 */
int32_t partywall_session_wait_closed(partywall_session *session, int32_t *reason,
                                      partywall_error **cause, int64_t timeout_ns,
                                      partywall_error **error);
/*
 * Waits until the session is over and all its bytes are written or given up, so that the process
 * may exit. PARTYWALL_TIMED_OUT: the session has not come to that.
 */
int32_t partywall_session_wait_finished(partywall_session *session, int64_t timeout_ns,
                                        partywall_error **error);

/* Writes what is known of the process of the session's peer. `size` is sizeof(partywall_peer). */
int32_t partywall_session_peer(partywall_session *session, partywall_peer *peer, size_t size);
/*
 * Copies a description of the session's peer for logs, without a zero byte at its end, and writes
 * its length to `*len`. PARTYWALL_BUFFER_TOO_SHORT: only `*len` is written.
 */
int32_t partywall_session_peer_text(partywall_session *session, void *buffer, size_t capacity,
                                    size_t *len, partywall_error **error);
/*
 * Writes the transport that the session has now, and the reason why memory is not shared. The
 * reason is 0 unless the transport is PARTYWALL_TRANSPORT_SOCKET.
 */
int32_t partywall_session_transport(partywall_session *session, int32_t *transport,
                                    uint32_t *reason);
/*
 * Copies a description of the session's transport for logs, with the reason why memory is not
 * shared.
 */
int32_t partywall_session_transport_text(partywall_session *session, void *buffer,
                                         size_t capacity, size_t *len, partywall_error **error);
/* Writes the counters of all that the session sends, in all its streams. */
int32_t partywall_session_sender_stats(partywall_session *session, partywall_sender_stats *stats,
                                       size_t size);
/* Writes the number of streams of a session that have not ended. */
int32_t partywall_session_streams(partywall_session *session, size_t *count);

/*
 * Drops both directions of a stream and frees its handle. A program that has sent messages calls
 * partywall_stream_finish before. NULL is allowed.
 */
int32_t partywall_stream_free(partywall_stream *stream);
/*
 * Writes where the metadata lie that the peer sent when it opened the stream. They stay valid until
 * the stream is freed.
 */
int32_t partywall_stream_metadata(partywall_stream *stream, const void **data, size_t *len);
/*
 * Sends a message, a copy of `len` bytes, on the stream. PARTYWALL_FULL: there is no room for the
 * message now. PARTYWALL_TIMED_OUT: there was no room in time. PARTYWALL_STREAM_STOPPED,
 * PARTYWALL_DISCONNECTED: the peer does not receive any more.
 */
int32_t partywall_stream_send(partywall_stream *stream, const void *data, size_t len,
                              int64_t timeout_ns, partywall_error **error);
/*
 * Reserves memory for a message of `len` bytes, which the caller writes at `*data` and then commits
 * or aborts. Any stream of the session may commit it.
 */
int32_t partywall_stream_reserve(partywall_stream *stream, size_t len, void **data,
                                 partywall_reservation **reservation, int64_t timeout_ns,
                                 partywall_error **error);
/*
 * Sends the message in `reservation` on the stream, and frees the reservation. The reservation
 * stays the caller's on the statuses that partywall_channel_commit names, such as PARTYWALL_FULL.
 */
int32_t partywall_stream_commit(partywall_stream *stream, partywall_reservation *reservation,
                                int64_t timeout_ns, partywall_error **error);
/*
 * Waits until the peer receives no more of the stream, and writes the reason to `*reason`: for
 * example PARTYWALL_STREAM_STOPPED, or PARTYWALL_DISCONNECTED. So a sender learns of the end without
 * sending; during the wait, nothing can be sent on the stream. PARTYWALL_ARGUMENT: the stream is in
 * a loop, which reports PARTYWALL_ENDED.
 */
int32_t partywall_stream_wait_stopped(partywall_stream *stream, int32_t *reason,
                                      partywall_error **cause, int64_t timeout_ns,
                                      partywall_error **error);
/*
 * Ends the sending direction of a stream: the peer receives every sent message, then
 * PARTYWALL_FINISHED.
 */
int32_t partywall_stream_finish(partywall_stream *stream, partywall_error **error);
/*
 * Ends the sending direction of a stream at once: the peer's receiving calls return
 * PARTYWALL_STREAM_RESET with the code.
 */
int32_t partywall_stream_reset(partywall_stream *stream, uint32_t code, partywall_error **error);
/*
 * Ends the receiving direction of a stream: the peer's sending calls return
 * PARTYWALL_STREAM_STOPPED with the code.
 */
int32_t partywall_stream_stop(partywall_stream *stream, uint32_t code, partywall_error **error);
/*
 * Receives the next message of a stream as a view, without a copy: `*data` is valid until the next
 * receiving call of the stream, or until the stream is freed. PARTYWALL_EMPTY: there is no message
 * now. PARTYWALL_FINISHED: the peer has ended its sending, and every message was received.
 * PARTYWALL_STREAM_RESET: the peer has ended its sending at once.
 */
int32_t partywall_stream_recv_view(partywall_stream *stream, const void **data, size_t *len,
                                   int64_t timeout_ns, partywall_error **error);
/*
 * Receives a copy of the next message of a stream, and writes its length to `*len`.
 * PARTYWALL_BUFFER_TOO_SHORT: `*len` is written, and the next receiving call returns the same
 * message.
 */
int32_t partywall_stream_recv_copy(partywall_stream *stream, void *buffer, size_t capacity,
                                   size_t *len, int64_t timeout_ns, partywall_error **error);
/*
 * Receives the next message of a stream as an object that the caller owns. A long message is not
 * copied.
 */
int32_t partywall_stream_recv(partywall_stream *stream, partywall_message **message,
                              int64_t timeout_ns, partywall_error **error);
/* Makes the message of the last view an object that the caller owns. The view ends. */
int32_t partywall_stream_keep(partywall_stream *stream, partywall_message **message,
                              partywall_error **error);
/*
 * Makes the event loop stop reporting the stream as readable until the next receiving call.
 */
int32_t partywall_stream_pause(partywall_stream *stream, partywall_error **error);

/*
 * Calls and answers over one stream of a session: many calls in flight, answered in any order.
 * spec/CALLS.md has the bytes. Any number of threads may call a client or a server; neither has a
 * thread of its own.
 */

/*
 * Makes a client of calls from a stream of a session that is in no loop, and frees the handle of
 * the stream. `config` may be NULL.
 */
int32_t partywall_calls_client_new(partywall_stream *stream, partywall_config *config,
                                   partywall_calls_client **client, partywall_error **error);
/*
 * Frees the handle of a client of calls. When all its calls are freed, too, the server gets
 * PARTYWALL_FINISHED. NULL is allowed.
 */
int32_t partywall_calls_client_free(partywall_calls_client *client);
/*
 * Makes a call, and waits for its answer. The server learns of the timeout. PARTYWALL_TIMED_OUT: the
 * call is cancelled. PARTYWALL_CALL_FAILED: the handler failed with the error's application code,
 * and `*answer` is the detail that it gave. PARTYWALL_CALL_REFUSED: the server has too many calls;
 * try again.
 * PARTYWALL_CALL_ABORTED: the server gave up the call. Any other status: the stream has ended.
 */
int32_t partywall_calls_client_call(partywall_calls_client *client, const void *data, size_t len,
                                    partywall_message **answer, int64_t timeout_ns,
                                    partywall_error **error);
/*
 * Makes a call to which the server sends no answer. PARTYWALL_OK means that the stream has taken
 * the call.
 */
int32_t partywall_calls_client_call_one_way(partywall_calls_client *client, const void *data,
                                            size_t len, int64_t timeout_ns,
                                            partywall_error **error);
/*
 * Sends a call without waiting for its answer. The timeout is that of the whole call, with its
 * answer.
 */
int32_t partywall_calls_client_begin(partywall_calls_client *client, const void *data, size_t len,
                                     partywall_call **call, int64_t timeout_ns,
                                     partywall_error **error);
/*
 * Waits for the answer of a call. The statuses are explained at partywall_calls_client_call. After
 * PARTYWALL_TIMED_OUT the call is still in flight, if its own timeout has not passed.
 */
int32_t partywall_call_wait(partywall_call *call, partywall_message **answer, int64_t timeout_ns,
                            partywall_error **error);
/* Frees the handle of a call, and cancels the call if it has no answer yet. NULL is allowed. */
int32_t partywall_call_free(partywall_call *call);

/*
 * Makes a server of calls from a stream of a session that is in no loop, and frees the handle of
 * the stream. `config` may be NULL.
 */
int32_t partywall_calls_server_new(partywall_stream *stream, partywall_config *config,
                                   partywall_calls_server **server, partywall_error **error);
/*
 * Frees the handle of a server of calls. Requests that it has returned can still be answered. NULL
 * is allowed.
 */
int32_t partywall_calls_server_free(partywall_calls_server *server);
/*
 * Returns the request of the client's next call. PARTYWALL_EMPTY: there is no call now.
 * PARTYWALL_FINISHED: the client has finished, and every call is answered. Any other status, but
 * for PARTYWALL_TIMED_OUT: the stream has ended early.
 */
int32_t partywall_calls_server_recv(partywall_calls_server *server, partywall_request **request,
                                    int64_t timeout_ns, partywall_error **error);
/*
 * Writes where the payload of a request lies. The payload stays valid until the request is freed.
 */
int32_t partywall_request_data(partywall_request *request, const void **data, size_t *len);
/*
 * Writes how many nanoseconds are left until the client's timeout for the call; -1 if the call has
 * no timeout.
 */
int32_t partywall_request_time_left(partywall_request *request, int64_t *timeout_ns);
/* Writes 1 if the client expects no answer to the call, else 0. */
int32_t partywall_request_is_one_way(partywall_request *request, int32_t *is_one_way);
/*
 * Writes 1 if nobody waits for the answer of a request any more: the call was cancelled, its
 * timeout has passed, or the client is gone. Else 0.
 */
int32_t partywall_request_is_cancelled(partywall_request *request, int32_t *is_cancelled);
/*
 * Sends the answer of a request, and frees the request, whatever the status but PARTYWALL_BUSY.
 * Nothing is sent to a client that does not wait any more. If the answer is not sent, also for
 * PARTYWALL_ARGUMENT, the client's call returns PARTYWALL_CALL_ABORTED.
 */
int32_t partywall_request_answer(partywall_request *request, const void *data, size_t len,
                                 int64_t timeout_ns, partywall_error **error);
/*
 * Makes the client's call fail with a code below 0xffffff00 and a detail, and frees the request,
 * whatever the status but PARTYWALL_BUSY. After PARTYWALL_ARGUMENT the client's call returns
 * PARTYWALL_CALL_ABORTED.
 */
int32_t partywall_request_fail(partywall_request *request, uint32_t code, const void *data,
                               size_t len, int64_t timeout_ns, partywall_error **error);
/*
 * Frees a request. The client's call returns PARTYWALL_CALL_ABORTED, unless it is one-way. NULL is
 * allowed.
 */
int32_t partywall_request_free(partywall_request *request);

/*
 * Sessions with programs that use shmipc-go or the crate shmipc. Their streams are those of a
 * partywall_session, but have no metadata. Keys of partywall_shmipc_config_set, with defaults:
 *
 *   queue_cap                 8192 elements: a multiple of 16
 *   share_memory_buffer_cap   33554432 bytes
 *   mem_map_type              PARTYWALL_SHMIPC_MEMFD
 *   region_bytes_max          1073741824: largest buffer region of a client that a server maps
 *   queue_entries_max         1048576: longest queue of a client that a server maps
 *   fallback_unread_max       67108864: most unread bytes that came over the socket
 *   fallback_message_max      33554416: most bytes in one message on the socket
 *   files_without_credentials 0: whether to open files that a client over TCP names
 *   guard_against_truncation  1: whether to survive a peer that truncates its memory
 *
 * and of partywall_shmipc_config_set_text:
 *
 *   share_memory_path_prefix  "/dev/shm/shmipc": the beginning of the names of buffer regions
 *   directory                 "/dev/shm": where a server opens files that clients name
 */
#define PARTYWALL_SHMIPC_MEMFD 0
#define PARTYWALL_SHMIPC_FILE 1

/* States that partywall_shmipc_hot_restart_state writes. */
#define PARTYWALL_HOT_RESTART_NEVER 0
#define PARTYWALL_HOT_RESTART_PENDING 1
#define PARTYWALL_HOT_RESTART_DONE 2
#define PARTYWALL_HOT_RESTART_TIMED_OUT 3

/* Makes a configuration of shmipc with the default settings. */
int32_t partywall_shmipc_config_new(partywall_shmipc_config **config, partywall_error **error);
/* Frees a configuration of shmipc. NULL is allowed. */
int32_t partywall_shmipc_config_free(partywall_shmipc_config *config);
/*
 * Sets one setting of a configuration of shmipc. PARTYWALL_ARGUMENT: there is no setting of the
 * name `key`. PARTYWALL_SETTING: the value is impossible.
 */
int32_t partywall_shmipc_config_set(partywall_shmipc_config *config, const char *key,
                                    uint64_t value, partywall_error **error);
int32_t partywall_shmipc_config_set_text(partywall_shmipc_config *config, const char *key,
                                         const char *value, partywall_error **error);
/*
 * Adds a class of slices of `size` bytes, which get `percent` of the buffer region. The first class
 * that is added replaces the default classes. Together all added classes must get 100 percent.
 */
int32_t partywall_shmipc_config_add_slices(partywall_shmipc_config *config, uint32_t size,
                                           uint32_t percent);

/*
 * Makes the protocol shmipc with the settings of `config`, which may be NULL. All sessions that are
 * opened with it as clients share one buffer region.
 */
int32_t partywall_shmipc_new(partywall_shmipc_config *config, partywall_shmipc **shmipc,
                             partywall_error **error);
/* Frees the handle of the protocol shmipc. Its sessions and listeners go on. NULL is allowed. */
int32_t partywall_shmipc_free(partywall_shmipc *shmipc);
/*
 * Makes a listener serve clients of shmipc, too. Clients of Partywall's own protocol are served as
 * before.
 */
int32_t partywall_session_listener_add_shmipc(partywall_session_listener *listener,
                                         partywall_shmipc *shmipc, partywall_error **error);
/*
 * Opens a session with the server of shmipc at `address`. If `loop` is not NULL, that loop drives
 * the session and reports `tag` for it. Waits for the handshake.
 */
int32_t partywall_shmipc_connect(partywall_shmipc *shmipc, const char *address,
                                 partywall_config *config, partywall_loop *loop, uint64_t tag,
                                 partywall_session **session, partywall_error **error);
/*
 * Hot restart: sends the clients of all accepted sessions to the process that listens at the
 * address now. `epoch` is at least 1, and differs from that of an earlier restart. Streams in use
 * go on. The hot restart is over after 2 s at most.
 */
int32_t partywall_shmipc_hot_restart(partywall_shmipc *shmipc, uint64_t epoch,
                                     partywall_error **error);
/* Writes the state of the last hot restart, such as PARTYWALL_HOT_RESTART_DONE. */
int32_t partywall_shmipc_hot_restart_state(partywall_shmipc *shmipc, int32_t *state);

/*
 * Keys of partywall_link_config_set. A default is given where it differs from that of the same key
 * of partywall_config_set:
 *
 *   ring_bytes                1048576
 *   slab_bytes                4194304
 *   transport, wait, poll_period_ns, spin_budget_ns
 *   delivery                  PARTYWALL_DELIVERY_AT_LEAST_ONCE
 *   after_reboot              PARTYWALL_AFTER_REBOOT_REFUSE
 *   attempts_max              the attempts after which a message counts as poison
 *   handshake_timeout_ns, handshakes_max, dead_after_ns, links_max, backlog, socket_mode
 *   allow_remote, allow_anonymous_tcp
 */
#define PARTYWALL_DELIVERY_AT_LEAST_ONCE 0
#define PARTYWALL_DELIVERY_AT_MOST_ONCE 1
#define PARTYWALL_AFTER_REBOOT_REFUSE 0
#define PARTYWALL_AFTER_REBOOT_ADOPT_PROVEN 1

/* States that partywall_link_status writes. A later version may have others. */
#define PARTYWALL_LINK_DETACHED 0
#define PARTYWALL_LINK_ATTACHING 1
#define PARTYWALL_LINK_ATTACHED 2
#define PARTYWALL_LINK_FENCED 3
#define PARTYWALL_LINK_QUARANTINED 4
#define PARTYWALL_LINK_CLOSED 5

/* Kinds of events of a link. A later version may have others. */
/* Event of a link: messages flow over a new connection. */
#define PARTYWALL_LINK_EVENT_ATTACHED 1
/* Event of a link: its connection has ended; a client attaches again by itself. */
#define PARTYWALL_LINK_EVENT_DETACHED 2
/* Event of a link: an attempt to attach has failed; a client tries again by itself. */
#define PARTYWALL_LINK_EVENT_REFUSED 3
/* Event of a link: this end has gone on to another epoch. */
#define PARTYWALL_LINK_EVENT_EPOCH 4
/* Event of a link: a later process has opened the store of this end, so this process
 * attaches no more. */
#define PARTYWALL_LINK_EVENT_FENCED 5
/* Event of a link: the files of its ends contradict each other; both ends keep all bytes until an
 * operator decides. */
#define PARTYWALL_LINK_EVENT_QUARANTINED 6
/* Event of a link, after a reboot before which it was not closed: sent messages may be lost. */
#define PARTYWALL_LINK_EVENT_LOSS_POSSIBLE 7
/* Event of a link, after a reboot before which it was not closed: acknowledged messages
 * may come again. */
#define PARTYWALL_LINK_EVENT_REPEAT_POSSIBLE 8
/* Event of a link: the file that it had since the last boot is gone; a new file begins empty. */
#define PARTYWALL_LINK_EVENT_FILE_REPLACED 9

/*
 * An event of a link. `is_resumed` is 1 if the peer's stream goes on where it was on the last
 * connection; it is 0 for a new stream, or if the peer has lost its state. `is_farewell` is 1 if
 * the connection ended because the peer closed its end. `epoch` is the number of the new epoch.
 * `text` describes the event for people, with the reason; a text that is too long is cut.
 */
typedef struct partywall_link_event {
    int32_t kind;
    int32_t is_resumed;
    int32_t is_farewell;
    int32_t reserved;
    uint64_t epoch;
    char text[488];
} partywall_link_event;

/* Makes a configuration of links with the default settings. */
int32_t partywall_link_config_new(partywall_link_config **config, partywall_error **error);
/* Makes a copy of a configuration of links. The copy names the same group. */
int32_t partywall_link_config_copy(partywall_link_config *config, partywall_link_config **copy,
                                   partywall_error **error);
/* Frees a configuration of links. NULL is allowed. */
int32_t partywall_link_config_free(partywall_link_config *config);
/*
 * Sets one setting of a configuration of links. PARTYWALL_ARGUMENT: there is no setting of the name
 * `key`. PARTYWALL_SETTING: the value is impossible.
 */
int32_t partywall_link_config_set(partywall_link_config *config, const char *key, uint64_t value,
                                  partywall_error **error);

/*
 * Links start no thread: whichever thread waits for a link, its client or its server, drives the
 * sockets and timers of their group. Without a call of partywall_link_config_set_group they have a
 * group of their own. A link that nobody waits for does not advance, unless its group is in a loop.
 */

/* Makes a group of links, without a link. */
int32_t partywall_link_group_new(partywall_link_group **group, partywall_error **error);
/* Frees the handle of a group of links, and removes the group from its loop. NULL is allowed. */
int32_t partywall_link_group_free(partywall_link_group *group);
/* Puts the links of all clients and servers that are made with this configuration into a group. */
int32_t partywall_link_config_set_group(partywall_link_config *config, partywall_link_group *group,
                                        partywall_error **error);
/*
 * Drives the links of a group until one of them has a message, has room, or has changed its state.
 * Writes the number of such links, which is 0 if the timeout passes first. A later call counts the
 * same link again only if it has unreceived messages, so call on every link the function that the
 * program waits for, such as partywall_link_recv.
 */
int32_t partywall_link_group_poll(partywall_link_group *group, size_t *count, int64_t timeout_ns,
                                  partywall_error **error);
/*
 * Writes the group's descriptor, with which another event loop waits for the group. When the
 * descriptor is readable, or the timer of partywall_link_group_next_timer is due, call
 * partywall_link_group_poll with timeout 0, and then on every link the function that the program
 * waits for. Unreceived messages make a loop's descriptor readable, but not a group's. Never read
 * from the descriptor, and never close it.
 */
int32_t partywall_link_group_fd(partywall_link_group *group, int32_t *fd);
/*
 * Writes after how many nanoseconds the next timer of a group of links is due; -1 if no timer is
 * set.
 */
int32_t partywall_link_group_next_timer(partywall_link_group *group, int64_t *timeout_ns);
/*
 * Adds a group to a loop, which reports `tag` as readable while links of the group have events. On
 * that event, call partywall_link_group_poll with timeout 0, and then on every link the function
 * that the program waits for.
 */
int32_t partywall_loop_add_links(partywall_loop *loop, partywall_link_group *group, uint64_t tag,
                                 partywall_error **error);

/*
 * Makes a client of links called `name`, which keeps its links in files of `directory`, or in
 * memory if `directory` is NULL. The directory must belong to this user alone. `config` may be
 * NULL.
 */
int32_t partywall_link_client_new(const char *directory, const char *name,
                                  partywall_link_config *config, partywall_link_client **client,
                                  partywall_error **error);
/* Frees a client of links. Its links stay. NULL is allowed. */
int32_t partywall_link_client_free(partywall_link_client *client);
/*
 * Opens the link called `name` to the server called `server` at `address`. Does not wait for the
 * server: the link keeps messages until the server is there.
 */
int32_t partywall_link_connect(partywall_link_client *client, const char *address,
                               const char *server, const char *name, partywall_link **link,
                               partywall_error **error);
/*
 * Listens for links of the end called `name` at `address`, and keeps them in files of `directory`,
 * or in memory if `directory` is NULL. The directory must belong to this user alone. `config` may
 * be NULL.
 */
int32_t partywall_link_server_bind(const char *address, const char *directory, const char *name,
                                   partywall_link_config *config, partywall_link_server **server,
                                   partywall_error **error);
/* Stops listening for links, and frees the server. NULL is allowed. */
int32_t partywall_link_server_free(partywall_link_server *server);
/*
 * Returns the next link that a client attaches to the server. PARTYWALL_TIMED_OUT: none came in
 * time.
 */
int32_t partywall_link_server_accept(partywall_link_server *server, partywall_link **link,
                                     int64_t timeout_ns, partywall_error **error);

/*
 * Copies the reason for which the server refused a connection last, without a zero byte at its end,
 * and writes its length to `*len`: 0 if the server has refused none. PARTYWALL_BUFFER_TOO_SHORT:
 * only `*len` is written.
 */
int32_t partywall_link_server_last_refusal(partywall_link_server *server, void *buffer,
                                           size_t capacity, size_t *len, partywall_error **error);
/*
 * Takes the error because of which the server could not open the last link of an admitted client,
 * such as a file of another boot. `*cause` becomes an error object, or NULL if there was none.
 */
int32_t partywall_link_server_take_open_error(partywall_link_server *server,
                                              partywall_error **cause, partywall_error **error);

/*
 * Frees the handle of a link. The end of a client is then closed without waiting: a peer that is
 * attached receives PARTYWALL_FINISHED. The end of a server stays open until its server is freed.
 * Both ends go on when they are opened again. NULL is allowed.
 */
int32_t partywall_link_free(partywall_link *link);
/*
 * Closes this end of a link in good order and frees its handle, whatever the status: the peer
 * receives PARTYWALL_FINISHED. Waits until the kernel has all bytes that were sent; while the link
 * has no connection, waits for one. PARTYWALL_TIMED_OUT: both ends go on when they are opened
 * again. PARTYWALL_BUSY: another call uses the link; its handle was freed, but the link was not
 * closed.
 */
int32_t partywall_link_close(partywall_link *link, int64_t timeout_ns, partywall_error **error);
/* Sends a copy of `len` bytes. The link keeps them until the peer has acknowledged them. */
int32_t partywall_link_send(partywall_link *link, const void *data, size_t len, int64_t timeout_ns,
                            partywall_error **error);
/* Receives the next message of a link. PARTYWALL_FINISHED: the peer has closed its end. */
int32_t partywall_link_recv(partywall_link *link, partywall_link_message **message,
                            int64_t timeout_ns, partywall_error **error);
/*
 * Copies the name of the link, or the name of the peer's end, without a zero byte at its end, and
 * writes its length to `*len`. A server distinguishes its clients by these names.
 * PARTYWALL_BUFFER_TOO_SHORT: only `*len` is written.
 */
int32_t partywall_link_name(partywall_link *link, void *buffer, size_t capacity, size_t *len,
                            partywall_error **error);
int32_t partywall_link_peer_name(partywall_link *link, void *buffer, size_t capacity, size_t *len,
                                 partywall_error **error);
/*
 * Waits until a connection is attached to the link. After PARTYWALL_TIMED_OUT,
 * partywall_link_next_event says why no connection was.
 */
int32_t partywall_link_wait_attached(partywall_link *link, int64_t timeout_ns,
                                     partywall_error **error);
/*
 * Waits until every message that was sent on the link is with the kernel, or in shared memory that
 * the peer reads. A thread that stops waiting for the link to do other work calls this before.
 * While the link has no connection, waits for one.
 */
int32_t partywall_link_wait_sent(partywall_link *link, int64_t timeout_ns, partywall_error **error);
/*
 * Waits until the peer has acknowledged every message that was sent. A peer that is gone
 * acknowledges nothing.
 */
int32_t partywall_link_wait_acked(partywall_link *link, int64_t timeout_ns,
                                  partywall_error **error);
/* Makes the link deliver every received message again that was not acknowledged. */
int32_t partywall_link_rewind(partywall_link *link, partywall_error **error);
/* Writes how many bytes of messages the link keeps because the peer has not acknowledged them. */
int32_t partywall_link_unacked_bytes(partywall_link *link, uint64_t *bytes,
                                     partywall_error **error);
/*
 * Writes the id of the stream that this end of the link sends, and the position in it at which the
 * next message will begin, or a lower position close to that. After a restart the id and the
 * position are the same, unless a message was sent in between. So a sender that stores both before
 * each message knows after a restart whether the link kept its last message.
 */
int32_t partywall_link_sent_position(partywall_link *link, uint64_t *stream, uint64_t *position,
                                     partywall_error **error);
/* Writes the state of the link: PARTYWALL_LINK_DETACHED and so on. */
int32_t partywall_link_status(partywall_link *link, int32_t *status);
/* Copies a description of the link's state for logs, with the transport and the peer. */
int32_t partywall_link_status_text(partywall_link *link, void *buffer, size_t capacity,
                                   size_t *len, partywall_error **error);
/*
 * Waits for the oldest event of the link, takes it and writes it. `size` is
 * sizeof(partywall_link_event). Sending and receiving do not fail when a connection ends; an event
 * says so. The link keeps the first 1024 events that were not taken. PARTYWALL_EMPTY: there is no
 * event now. Once a link is fenced or in quarantine, its earlier events come first, then the number
 * of that error as status.
 */
int32_t partywall_link_next_event(partywall_link *link, partywall_link_event *event, size_t size,
                                  int64_t timeout_ns, partywall_error **error);

/* Writes where the bytes of a link's message lie. They stay valid until the message is freed. */
int32_t partywall_link_message_data(partywall_link_message *message, const void **data,
                                    size_t *len);
/*
 * Writes the delivery count of a message: 1, and one more for each earlier owner of this end that
 * received the message and did not acknowledge it.
 */
int32_t partywall_link_message_attempt(partywall_link_message *message, uint32_t *attempt);
/* Writes the position of the message in the peer's stream. */
int32_t partywall_link_message_position(partywall_link_message *message, uint64_t *position);
/*
 * Acknowledges a message with all messages before it, and frees the message, whatever the status
 * but PARTYWALL_BUSY.
 */
int32_t partywall_link_message_ack(partywall_link_message *message, partywall_error **error);
/*
 * Sends an answer and acknowledges the message: both or neither. Frees the message, whatever the
 * status but PARTYWALL_BUSY. A message that was not acknowledged, also for PARTYWALL_ARGUMENT, is
 * delivered again.
 */
int32_t partywall_link_message_reply(partywall_link_message *message, const void *data, size_t len,
                                     int64_t timeout_ns, partywall_error **error);
/* Frees a message. If it was not acknowledged, it is delivered again. NULL is allowed. */
int32_t partywall_link_message_free(partywall_link_message *message);

#ifdef __cplusplus
}
#endif

#endif
