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

/* ---- The library ------------------------------------------------------------------------- */

/* Returns the version of the library, such as "0.1.0". */
const char *partywall_version(void);
/* Returns the number of the binary interface. A program has to be compiled again if it changes. */
uint32_t partywall_abi(void);
/*
 * Returns the text of a status, for programs that pass no place for an error object. That object
 * says more: whom the failure concerns, and what to do.
 */
const char *partywall_status_text(int32_t status);

/* ---- Errors ------------------------------------------------------------------------------ */

/* Returns the text of an error, which stays valid until the error is freed. */
const char *partywall_error_message(partywall_error *error);
/* Returns the number of an error, which is also the status that came with it; 0 for no error. */
int32_t partywall_error_code(partywall_error *error);
/* Returns the code that the peer's application gave to end a stream or session, or 0. */
uint32_t partywall_error_application_code(partywall_error *error);
/* Returns the errno of the system call behind an error, or 0. */
int32_t partywall_error_errno(partywall_error *error);
/* Frees an error. NULL is allowed. */
int32_t partywall_error_free(partywall_error *error);

/* ---- Configurations ---------------------------------------------------------------------- */

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
 *   map_max                   memory_max and 1 MiB
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
 *   queue_bytes               1048576: most bytes of these
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

/* Makes a configuration with the default settings. Objects copy the configuration they are given. */
int32_t partywall_config_new(partywall_config **config, partywall_error **error);
/* Makes a copy of a configuration. */
int32_t partywall_config_copy(partywall_config *config, partywall_config **copy,
                              partywall_error **error);
/* Frees a configuration. NULL is allowed. */
int32_t partywall_config_free(partywall_config *config);
/*
 * Sets one setting. PARTYWALL_ARGUMENT: there is no such key. PARTYWALL_SETTING: the value is not
 * possible; some values are checked only when the configuration is used.
 */
int32_t partywall_config_set(partywall_config *config, const char *key, uint64_t value,
                             partywall_error **error);
/*
 * Admits processes of the user `uid`, or of the primary group `gid`, and refuses all others that no
 * such call admits. Without one, every process is admitted that may open the address.
 */
int32_t partywall_config_admit_user(partywall_config *config, uint32_t uid);
int32_t partywall_config_admit_group(partywall_config *config, uint32_t gid);

/* ---- Peers, transports and counters ------------------------------------------------------- */

/*
 * Structures that a call fills. The caller passes the size of the structure that it knows; a later
 * version may add fields at the end. PARTYWALL_ARGUMENT: no memory can be of that size.
 */

/*
 * The process at the other end, as the kernel attests it. Without credentials, as over TCP, its
 * numbers are 0. `distrust` says why the peer is not trusted: PARTYWALL_DISTRUST_POLICY and so on, 0
 * if it is. A later version may have other reasons.
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

/* A transport is PARTYWALL_TRANSPORT_SHARED_MEMORY, PARTYWALL_TRANSPORT_SOCKET, or this one. */
#define PARTYWALL_TRANSPORT_PROTOCOL 3

/* Reasons why a socket is used. A peer of a later version may send others. */
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
 * them, and `overflows` went through the ring because other memory had no room. `memory_bytes` are
 * allocated for long messages now. Of these, `memory_used_bytes` are reserved or held by the
 * receiver, in `blocks_in_flight` messages; over a socket, they are bytes that the kernel has not
 * taken yet.
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

/* Counters of a receiving direction. A spin hit is a message that arrived while the call spun. */
typedef struct partywall_receiver_stats {
    uint64_t messages;
    uint64_t bytes;
    uint64_t zero_copy;
    uint64_t wakeups_sent;
    uint64_t sleeps;
    uint64_t spin_hits;
} partywall_receiver_stats;

/* ---- Listeners --------------------------------------------------------------------------- */

/*
 * Listens at `address`: "unix:/path", "unix:@name" or "tcp:host:port". `config` may be NULL, which
 * means the defaults.
 */
int32_t partywall_listener_bind(const char *address, partywall_config *config,
                                partywall_listener **listener, partywall_error **error);
/* Stops listening and removes the socket file. NULL is allowed. */
int32_t partywall_listener_free(partywall_listener *listener);
/* Returns the next channel. PARTYWALL_TIMED_OUT: none was established in time. */
int32_t partywall_listener_accept(partywall_listener *listener, partywall_channel **channel,
                                  int64_t timeout_ns, partywall_error **error);
/*
 * Copies the bound address, without a zero byte at its end, and writes its length to `*len`. For
 * port 0 it has the port that the system chose. PARTYWALL_BUFFER_TOO_SHORT: only `*len` is written.
 */
int32_t partywall_listener_address(partywall_listener *listener, void *buffer, size_t capacity,
                                   size_t *len, partywall_error **error);

/*
 * Writes a descriptor that is readable while partywall_listener_accept with timeout 0 may find
 * something to do. Never read from it, and never close it.
 */
int32_t partywall_listener_fd(partywall_listener *listener, int32_t *fd, partywall_error **error);

/* ---- Channels ---------------------------------------------------------------------------- */

/*
 * Opens a channel with the listener at `address`. `config` may be NULL. Waits for the handshake, at
 * most for its timeout.
 */
int32_t partywall_connect(const char *address, partywall_config *config,
                          partywall_channel **channel, partywall_error **error);
/*
 * Ends both directions and frees the channel. The peer receives every sent message, then
 * PARTYWALL_FINISHED. Views of its messages end; messages of their own stay. NULL is allowed.
 */
int32_t partywall_channel_free(partywall_channel *channel);

/*
 * Sends a copy of `len` bytes. `data` may be NULL if `len` is 0. PARTYWALL_FULL: there is no room
 * now. PARTYWALL_TIMED_OUT: there was none in time. PARTYWALL_FINISHED, PARTYWALL_DISCONNECTED: the
 * peer does not receive any more.
 *
 * Over a socket, the kernel may have taken only a part of the message when the call returns
 * PARTYWALL_OK. The next call that sends, partywall_channel_flush or freeing the channel writes the
 * rest: without one of them the peer waits for it.
 */
int32_t partywall_channel_send(partywall_channel *channel, const void *data, size_t len,
                               int64_t timeout_ns, partywall_error **error);
/*
 * Reserves memory for a message of `len` bytes, to be written at `*data` and then committed or
 * aborted. Any thread may write it. A forked child must not touch it.
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
/* Waits until the kernel has taken the bytes of all sent messages. Shared memory has none. */
int32_t partywall_channel_flush(partywall_channel *channel, int64_t timeout_ns,
                                partywall_error **error);
/*
 * Prepares for waiting for room by poll or epoll, after PARTYWALL_FULL: writes a descriptor that
 * becomes readable once there may be some, or -1 if there may be some now. Then send again. Never
 * read from the descriptor, and never close it.
 */
int32_t partywall_channel_arm_send(partywall_channel *channel, int32_t *fd,
                                   partywall_error **error);
/* The same for a message, after PARTYWALL_EMPTY. */
int32_t partywall_channel_arm_recv(partywall_channel *channel, int32_t *fd,
                                   partywall_error **error);
/*
 * Waits after PARTYWALL_EMPTY, without polling, until there may be a message or another thread calls
 * partywall_channel_wake. Then receive again; meanwhile no other thread may receive, or add the channel
 * to a loop. Short calls of others, such as those for counters, are not kept waiting. A wake-up shortly
 * before the timeout may end as PARTYWALL_TIMED_OUT, so look at what it announces after every status.
 * PARTYWALL_ARGUMENT: the channel did not begin over shared memory, or is in a loop: wait by
 * partywall_channel_arm_recv, or by the loop.
 */
int32_t partywall_channel_wait_recv(partywall_channel *channel, int64_t timeout_ns,
                                    partywall_error **error);
/*
 * Ends partywall_channel_wait_recv of another thread, or the next such call. Any thread may call it.
 * PARTYWALL_ARGUMENT: the channel did not begin over shared memory.
 */
int32_t partywall_channel_wake(partywall_channel *channel, partywall_error **error);
/* Ends the sending direction. The peer's answers are still received. */
int32_t partywall_channel_close_write(partywall_channel *channel, partywall_error **error);

/*
 * Receives the next message as a view, without a copy: `*data` is valid until the next receiving
 * call of the channel, or until the channel is freed. PARTYWALL_EMPTY: there is none now.
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
/* Receives the next message as an object of its own. A long message is not copied. */
int32_t partywall_channel_recv(partywall_channel *channel, partywall_message **message,
                               int64_t timeout_ns, partywall_error **error);
/* Makes the message of the last view an object of its own. The view ends. */
int32_t partywall_channel_keep(partywall_channel *channel, partywall_message **message,
                               partywall_error **error);
/*
 * Has a loop report the channel as readable no longer, until the next receiving call. A program that
 * takes no messages for a while would otherwise get the event in every turn.
 */
int32_t partywall_channel_pause(partywall_channel *channel, partywall_error **error);

/* Writes what is known of the peer. `size` is sizeof(partywall_peer). */
int32_t partywall_channel_peer(partywall_channel *channel, partywall_peer *peer, size_t size);
/* Copies a description of the peer for logs, as partywall_listener_address copies the address. */
int32_t partywall_channel_peer_text(partywall_channel *channel, void *buffer, size_t capacity,
                                    size_t *len, partywall_error **error);
/*
 * Writes the transport as it is now, and the reason why memory is not shared, which is 0 unless the
 * transport is PARTYWALL_TRANSPORT_SOCKET.
 */
int32_t partywall_channel_transport(partywall_channel *channel, int32_t *transport,
                                    uint32_t *reason);
/* Copies a description of the transport for logs, with the reason. */
int32_t partywall_channel_transport_text(partywall_channel *channel, void *buffer,
                                         size_t capacity, size_t *len, partywall_error **error);
/* Writes the counters of a direction. PARTYWALL_BUSY: another call uses that direction. */
int32_t partywall_channel_sender_stats(partywall_channel *channel, partywall_sender_stats *stats,
                                       size_t size);
int32_t partywall_channel_receiver_stats(partywall_channel *channel,
                                         partywall_receiver_stats *stats, size_t size);

/* ---- Records that may be lost ------------------------------------------------------------ */

/* Logs, traces and samples, which never wait for their receiver. spec/RECORDS.md has the bytes. */

/* What became of a record. */
#define PARTYWALL_LOG_SENT 0
#define PARTYWALL_LOG_QUEUED 1
#define PARTYWALL_LOG_DROPPED_FULL 2
#define PARTYWALL_LOG_DROPPED_TOO_LONG 3
#define PARTYWALL_LOG_DROPPED_CLOSED 4

/* Counters of a sender: their sum is the number of records that were logged. */
typedef struct partywall_lossy_stats {
    uint64_t sent;
    uint64_t queued;
    uint64_t dropped_full;
    uint64_t dropped_too_long;
    uint64_t dropped_closed;
} partywall_lossy_stats;

/*
 * Makes a sender of records, which any number of threads may call, from the sending direction of a
 * channel that is in no loop. The channel keeps the other direction. `config` may be NULL.
 */
int32_t partywall_lossy_sender_new(partywall_channel *channel, partywall_config *config,
                                   partywall_lossy_sender **sender, partywall_error **error);
/* Sends what is queued, waits for that at most `flush_on_drop_ns`, and frees the sender. NULL is
 * allowed. */
int32_t partywall_lossy_sender_free(partywall_lossy_sender *sender);
/*
 * Logs a record, and writes what became of it: PARTYWALL_LOG_SENT and so on. `outcome` may be NULL.
 * The call waits only under PARTYWALL_ON_FULL_BLOCK.
 */
int32_t partywall_lossy_log(partywall_lossy_sender *sender, const void *data, size_t len,
                            int32_t *outcome, partywall_error **error);
/* Logs an important record: waits for room under every policy, and sends it after the queued ones. */
int32_t partywall_lossy_log_wait(partywall_lossy_sender *sender, const void *data, size_t len,
                                 int32_t *outcome, int64_t timeout_ns, partywall_error **error);
/*
 * Sends the queued records and the count of losses. With timeout 0 it never waits, and returns
 * PARTYWALL_FULL if records stay queued. PARTYWALL_FINISHED, PARTYWALL_DISCONNECTED: the receiver
 * was found to be gone, so the records in the queue are lost.
 */
int32_t partywall_lossy_flush(partywall_lossy_sender *sender, int64_t timeout_ns,
                              partywall_error **error);
/* Writes the counters of a sender. */
int32_t partywall_lossy_sender_stats(partywall_lossy_sender *sender, partywall_lossy_stats *stats,
                                     size_t size);
/* Writes 1 if the receiver is gone, so that every record is dropped: connect anew. Else 0. */
int32_t partywall_lossy_sender_is_closed(partywall_lossy_sender *sender, int32_t *is_closed);

/* Makes a receiver of records from the receiving direction of a channel that is in no loop. */
int32_t partywall_lossy_receiver_new(partywall_channel *channel,
                                     partywall_lossy_receiver **receiver, partywall_error **error);
/* Ends the receiving direction, and frees the receiver. NULL is allowed. */
int32_t partywall_lossy_receiver_free(partywall_lossy_receiver *receiver);
/*
 * Receives a view of the next record, as partywall_channel_recv_view does, and writes how many
 * records were lost before it. `lost_before` may be NULL. PARTYWALL_NOT_A_RECORD: the message counts
 * as received, and the next one can be received.
 */
int32_t partywall_lossy_recv_view(partywall_lossy_receiver *receiver, const void **data,
                                  size_t *len, uint64_t *lost_before, int64_t timeout_ns,
                                  partywall_error **error);
/* Receives the next record as an object of its own. */
int32_t partywall_lossy_recv(partywall_lossy_receiver *receiver, partywall_message **message,
                             uint64_t *lost_before, int64_t timeout_ns, partywall_error **error);
/* Writes how many records were received so far, and how many the sender has reported lost. */
int32_t partywall_lossy_receiver_counts(partywall_lossy_receiver *receiver, uint64_t *received,
                                        uint64_t *lost);

/* ---- Messages ---------------------------------------------------------------------------- */

/* Writes where the bytes of a message lie. They stay there until the message is freed. */
int32_t partywall_message_data(partywall_message *message, const void **data, size_t *len);
/* Writes 1 if the bytes lie in memory of their sender, 0 if they were copied. */
int32_t partywall_message_is_zero_copy(partywall_message *message, int32_t *is_zero_copy);
/* Frees a message, in any thread, also after its channel was freed. NULL is allowed. */
int32_t partywall_message_free(partywall_message *message);

/* ---- Reservations ------------------------------------------------------------------------ */

/* Writes where the reserved bytes lie. */
int32_t partywall_reservation_data(partywall_reservation *reservation, void **data, size_t *len);
/* Shortens the message to `len` bytes, if it is longer. */
int32_t partywall_reservation_truncate(partywall_reservation *reservation, size_t len);
/* Frees a reservation, in any thread, without sending the message. NULL is allowed. */
int32_t partywall_reservation_abort(partywall_reservation *reservation);

/* ---- The event loop ---------------------------------------------------------------------- */

/* There may be a message to receive, or a channel to accept. Reported until a call finds none. */
#define PARTYWALL_READABLE 1
/* There may be room to send. Reported once after a call returned PARTYWALL_FULL. */
#define PARTYWALL_WRITABLE 2
/* There may be a stream or a session to accept. Reported until a call finds none. */
#define PARTYWALL_OPENED 4
/* The peer has ended its direction, or the session is over. Reported once. */
#define PARTYWALL_ENDED 8

/* An event: the tag of an object, and a set of the kinds above. An event may come needlessly. */
typedef struct partywall_event {
    uint64_t tag;
    uint32_t kinds;
    uint32_t reserved;
} partywall_event;

/* Makes a loop without objects. */
int32_t partywall_loop_new(partywall_loop **loop, partywall_error **error);
/*
 * Makes a loop that reports each kind of an object once: again only after a call found nothing. Groups
 * of links are reported as in any loop.
 */
int32_t partywall_loop_new_once(partywall_loop **loop, partywall_error **error);
/*
 * Frees a loop. Its objects stay, but no loop reports their events any more. NULL is allowed. If a
 * channel of the loop was freed while its socket had not taken all bytes of sent messages, the call
 * waits for that, at most until 1 s after the channel was freed.
 */
int32_t partywall_loop_free(partywall_loop *loop);
/*
 * Writes the loop's descriptor for another event loop. When it is readable, call partywall_loop_wait
 * with timeout 0; above an edge-triggered loop, until it writes fewer events than `capacity`. Never
 * read from the descriptor, and never close it.
 */
int32_t partywall_loop_fd(partywall_loop *loop, int32_t *fd);
/*
 * Adds both directions of a channel, which report `tag`, each in an event of its own. From then on
 * the calls of the channel take only timeout 0. Freeing the channel removes it.
 */
int32_t partywall_loop_add_channel(partywall_loop *loop, partywall_channel *channel, uint64_t tag,
                                   partywall_error **error);
/* Adds a listener, as partywall_loop_add_channel adds a channel. */
int32_t partywall_loop_add_listener(partywall_loop *loop, partywall_listener *listener,
                                    uint64_t tag, partywall_error **error);
/*
 * Waits until objects have events, and writes at most `capacity` of them to `events`, and their
 * number to `*count`. The number is 0 if there were none in time.
 */
int32_t partywall_loop_wait(partywall_loop *loop, partywall_event *events, size_t capacity,
                            size_t *count, int64_t timeout_ns, partywall_error **error);
/*
 * Does the same without waiting, for a thread that calls again before it waits. Peers do not notify the
 * loop meanwhile, and its descriptor may stay quiet. Before the thread waits for the descriptor, which it
 * watches level-triggered, it calls partywall_loop_wait with timeout 0 until that writes no event.
 */
int32_t partywall_loop_poll_awake(partywall_loop *loop, partywall_event *events, size_t capacity,
                                  size_t *count, partywall_error **error);
/*
 * Writes after how many nanoseconds to call partywall_loop_wait although the descriptor is not
 * readable; -1 if no timer is set. A watched descriptor becomes readable for timers, too.
 */
int32_t partywall_loop_next_timer(partywall_loop *loop, int64_t *timeout_ns);

/* ---- Sessions ---------------------------------------------------------------------------- */

/*
 * Listens for sessions at `address`. Without a loop, each session has a thread of its own, and calls
 * may wait. With one, the loop reports `tag` as opened, it drives the sessions, and calls take only
 * timeout 0.
 */
int32_t partywall_session_listener_bind(const char *address, partywall_config *config,
                                        partywall_loop *loop, uint64_t tag,
                                        partywall_session_listener **listener,
                                        partywall_error **error);
/* Stops listening and removes the socket file. NULL is allowed. */
int32_t partywall_session_listener_free(partywall_session_listener *listener);
/* Returns the next session, which reports `tag` in a loop. PARTYWALL_TIMED_OUT: none came in time. */
int32_t partywall_session_listener_accept(partywall_session_listener *listener, uint64_t tag,
                                          partywall_session **session, int64_t timeout_ns,
                                          partywall_error **error);
/* Copies the bound address, as partywall_listener_address does. */
int32_t partywall_session_listener_address(partywall_session_listener *listener, void *buffer,
                                           size_t capacity, size_t *len, partywall_error **error);
/*
 * Opens a session with the listener at `address`. `loop` and `tag` are as of
 * partywall_session_listener_bind. Waits for the handshake.
 */
int32_t partywall_session_connect(const char *address, partywall_config *config,
                                  partywall_loop *loop, uint64_t tag, partywall_session **session,
                                  partywall_error **error);
/*
 * Frees the handle. The session lives on while it has streams; after the last of them, it ends in
 * good order. NULL is allowed.
 */
int32_t partywall_session_free(partywall_session *session);
/*
 * Opens a stream, with `len` bytes of metadata for the peer. It reports `tag` in a loop.
 * PARTYWALL_WOULD_BLOCK: as many are open as the peer allows, or room is lacking.
 */
int32_t partywall_session_open(partywall_session *session, const void *metadata, size_t len,
                               uint64_t tag, partywall_stream **stream, int64_t timeout_ns,
                               partywall_error **error);
/*
 * Returns the next stream that the peer has opened, which reports `tag` in a loop.
 * PARTYWALL_WOULD_BLOCK: there is none now. PARTYWALL_FINISHED: the session was closed.
 */
int32_t partywall_session_accept(partywall_session *session, uint64_t tag,
                                 partywall_stream **stream, int64_t timeout_ns,
                                 partywall_error **error);
/* Asks the peer to open no more streams, and gives it the code. */
int32_t partywall_session_go_away(partywall_session *session, uint32_t code,
                                  partywall_error **error);
/*
 * Ends the session with all its streams. The peer gets the code, which is below 0xffffff00, and the
 * reason.
 */
int32_t partywall_session_close(partywall_session *session, uint32_t code, const char *reason,
                                partywall_error **error);
/* Waits until every stream of the session has ended. PARTYWALL_TIMED_OUT: some have not. */
int32_t partywall_session_wait_drained(partywall_session *session, int64_t timeout_ns,
                                       partywall_error **error);
/*
 * Waits until the session is over, and writes the number of the reason to `*reason`: for example
 * PARTYWALL_FINISHED, PARTYWALL_DISCONNECTED, or 411 if the peer closed it with a code or text. `cause`
 * may be NULL; otherwise `*cause` becomes an error object with the text and the application code, or
 * NULL for a state. PARTYWALL_TIMED_OUT: the session is not over.
 */
int32_t partywall_session_wait_closed(partywall_session *session, int32_t *reason,
                                      partywall_error **cause, int64_t timeout_ns,
                                      partywall_error **error);
/* Waits until the session is over and the process may exit. PARTYWALL_TIMED_OUT: it is not. */
int32_t partywall_session_wait_finished(partywall_session *session, int64_t timeout_ns,
                                        partywall_error **error);

/* Writes what is known of the peer, as partywall_channel_peer does. */
int32_t partywall_session_peer(partywall_session *session, partywall_peer *peer, size_t size);
/* Copies a description of the peer for logs. */
int32_t partywall_session_peer_text(partywall_session *session, void *buffer, size_t capacity,
                                    size_t *len, partywall_error **error);
/* Writes the transport as it is now, and the reason, as partywall_channel_transport does. */
int32_t partywall_session_transport(partywall_session *session, int32_t *transport,
                                    uint32_t *reason);
/* Copies a description of the transport for logs, with the reason. */
int32_t partywall_session_transport_text(partywall_session *session, void *buffer,
                                         size_t capacity, size_t *len, partywall_error **error);
/* Writes the counters of all that the session sends. */
int32_t partywall_session_sender_stats(partywall_session *session, partywall_sender_stats *stats,
                                       size_t size);
/* Writes the number of streams that have not ended. */
int32_t partywall_session_streams(partywall_session *session, size_t *count);

/* ---- Streams ----------------------------------------------------------------------------- */

/* Drops both directions and frees the stream; finish it first. NULL is allowed. */
int32_t partywall_stream_free(partywall_stream *stream);
/* Writes where the metadata of a stream lie that the peer has opened. They stay there until free. */
int32_t partywall_stream_metadata(partywall_stream *stream, const void **data, size_t *len);
/* Sends a copy of `len` bytes, as partywall_channel_send does. */
int32_t partywall_stream_send(partywall_stream *stream, const void *data, size_t len,
                              int64_t timeout_ns, partywall_error **error);
/* Reserves memory, as partywall_channel_reserve does. Any stream of the session may commit it. */
int32_t partywall_stream_reserve(partywall_stream *stream, size_t len, void **data,
                                 partywall_reservation **reservation, int64_t timeout_ns,
                                 partywall_error **error);
/* Sends the message in `reservation`, as partywall_channel_commit does. */
int32_t partywall_stream_commit(partywall_stream *stream, partywall_reservation *reservation,
                                int64_t timeout_ns, partywall_error **error);
/*
 * Waits until the peer receives no more, and writes why, as partywall_session_wait_closed does: for
 * example PARTYWALL_STREAM_STOPPED, or PARTYWALL_DISCONNECTED. So a sender learns of the end without
 * sending; meanwhile, nothing else can be sent on the stream. PARTYWALL_ARGUMENT: the stream is in a
 * loop, which reports PARTYWALL_ENDED.
 */
int32_t partywall_stream_wait_stopped(partywall_stream *stream, int32_t *reason,
                                      partywall_error **cause, int64_t timeout_ns,
                                      partywall_error **error);
/* Ends the sending direction: the peer receives every sent message, then PARTYWALL_FINISHED. */
int32_t partywall_stream_finish(partywall_stream *stream, partywall_error **error);
/* Ends the sending direction at once: the peer gets PARTYWALL_STREAM_RESET and the code. */
int32_t partywall_stream_reset(partywall_stream *stream, uint32_t code, partywall_error **error);
/* Ends the receiving direction: the peer gets PARTYWALL_STREAM_STOPPED and the code. */
int32_t partywall_stream_stop(partywall_stream *stream, uint32_t code, partywall_error **error);
/* Receives a view, as partywall_channel_recv_view does. */
int32_t partywall_stream_recv_view(partywall_stream *stream, const void **data, size_t *len,
                                   int64_t timeout_ns, partywall_error **error);
/* Receives a copy, as partywall_channel_recv_copy does. */
int32_t partywall_stream_recv_copy(partywall_stream *stream, void *buffer, size_t capacity,
                                   size_t *len, int64_t timeout_ns, partywall_error **error);
/* Receives a message as an object of its own, as partywall_channel_recv does. */
int32_t partywall_stream_recv(partywall_stream *stream, partywall_message **message,
                              int64_t timeout_ns, partywall_error **error);
/* Makes the message of the last view an object of its own. The view ends. */
int32_t partywall_stream_keep(partywall_stream *stream, partywall_message **message,
                              partywall_error **error);
/* Has a loop report the stream as readable no longer, as partywall_channel_pause does. */
int32_t partywall_stream_pause(partywall_stream *stream, partywall_error **error);

/* ---- Calls ------------------------------------------------------------------------------- */

/*
 * Calls and answers over one stream, many in flight, answered in any order. spec/CALLS.md has the
 * bytes. Any number of threads may call a client or a server; no thread works behind them.
 */

/*
 * Makes a client from a stream of a session that is in no loop, and frees the handle of the stream.
 * `config` may be NULL.
 */
int32_t partywall_calls_client_new(partywall_stream *stream, partywall_config *config,
                                   partywall_calls_client **client, partywall_error **error);
/* Frees the handle. When its calls are freed, too, the server gets PARTYWALL_FINISHED. NULL is
 * allowed. */
int32_t partywall_calls_client_free(partywall_calls_client *client);
/*
 * Makes a call, and waits for its answer. The server learns of the timeout. PARTYWALL_TIMED_OUT: the
 * call is cancelled. PARTYWALL_CALL_FAILED: the handler failed with the error's application code,
 * and `*answer` is its detail. PARTYWALL_CALL_REFUSED: the server has too many calls; try again.
 * PARTYWALL_CALL_ABORTED: the server gave up the call. Any other status: the stream has ended.
 */
int32_t partywall_calls_client_call(partywall_calls_client *client, const void *data, size_t len,
                                    partywall_message **answer, int64_t timeout_ns,
                                    partywall_error **error);
/* Makes a call without an answer. PARTYWALL_OK means that the stream has taken it. */
int32_t partywall_calls_client_call_one_way(partywall_calls_client *client, const void *data,
                                            size_t len, int64_t timeout_ns,
                                            partywall_error **error);
/* Sends a call, and does not wait for its answer. The timeout is that of the whole call. */
int32_t partywall_calls_client_begin(partywall_calls_client *client, const void *data, size_t len,
                                     partywall_call **call, int64_t timeout_ns,
                                     partywall_error **error);
/*
 * Waits for the answer, with the statuses of partywall_calls_client_call. After PARTYWALL_TIMED_OUT
 * the call is still in flight, if its own timeout has not passed.
 */
int32_t partywall_call_wait(partywall_call *call, partywall_message **answer, int64_t timeout_ns,
                            partywall_error **error);
/* Frees a call, and cancels it if it has no answer yet. NULL is allowed. */
int32_t partywall_call_free(partywall_call *call);

/* Makes a server from a stream, as partywall_calls_client_new makes a client. */
int32_t partywall_calls_server_new(partywall_stream *stream, partywall_config *config,
                                   partywall_calls_server **server, partywall_error **error);
/* Frees the handle. Its requests can still be answered. NULL is allowed. */
int32_t partywall_calls_server_free(partywall_calls_server *server);
/*
 * Returns the next call. PARTYWALL_EMPTY: there is none now. PARTYWALL_FINISHED: the client has
 * finished, and every call is answered. Any other status, but for PARTYWALL_TIMED_OUT: the stream has
 * ended early.
 */
int32_t partywall_calls_server_recv(partywall_calls_server *server, partywall_request **request,
                                    int64_t timeout_ns, partywall_error **error);
/* Writes where the payload of a request lies. It stays there until the request is freed. */
int32_t partywall_request_data(partywall_request *request, const void **data, size_t *len);
/* Writes how many nanoseconds are left until the client's timeout; -1 if it has none. */
int32_t partywall_request_time_left(partywall_request *request, int64_t *timeout_ns);
/* Writes 1 if the client expects no answer, else 0. */
int32_t partywall_request_is_one_way(partywall_request *request, int32_t *is_one_way);
/* Writes 1 if nobody waits for the answer: it was cancelled, its time is over, or the client gone. */
int32_t partywall_request_is_cancelled(partywall_request *request, int32_t *is_cancelled);
/*
 * Sends the answer, and frees the request, whatever the status but PARTYWALL_BUSY. Nothing is sent
 * to a client that does not wait any more. An answer that is not sent, also for PARTYWALL_ARGUMENT,
 * makes the call PARTYWALL_CALL_ABORTED.
 */
int32_t partywall_request_answer(partywall_request *request, const void *data, size_t len,
                                 int64_t timeout_ns, partywall_error **error);
/*
 * Fails the call with a code below 0xffffff00 and a detail, and frees the request, whatever the
 * status but PARTYWALL_BUSY. After PARTYWALL_ARGUMENT the call is PARTYWALL_CALL_ABORTED.
 */
int32_t partywall_request_fail(partywall_request *request, uint32_t code, const void *data,
                               size_t len, int64_t timeout_ns, partywall_error **error);
/* Frees a request: the call is PARTYWALL_CALL_ABORTED, unless it is one-way. NULL is allowed. */
int32_t partywall_request_free(partywall_request *request);

/* ---- The protocol shmipc ----------------------------------------------------------------- */

/*
 * Sessions with programs that use shmipc-go or the crate shmipc. Its streams are streams as above,
 * without metadata. Keys of partywall_shmipc_config_set, with their defaults:
 *
 *   queue_cap                 8192 elements: a multiple of 16
 *   share_memory_buffer_cap   33554432 bytes
 *   mem_map_type              PARTYWALL_SHMIPC_MEMFD
 *   region_bytes_max          1073741824: largest region of a client that a server maps
 *   queue_entries_max         1048576: longest queue of a client that a server maps
 *   fallback_unread_max       67108864: most unread bytes that came over the socket
 *   fallback_message_max      33554416: most bytes in one message on the socket
 *   files_without_credentials 0: whether to open files that a client over TCP names
 *   guard_against_truncation  1: whether to survive a peer that truncates its memory
 *
 * and of partywall_shmipc_config_set_text:
 *
 *   share_memory_path_prefix  "/dev/shm/shmipc": the beginning of the names of regions
 *   directory                 "/dev/shm": where a server opens files that clients name
 */
#define PARTYWALL_SHMIPC_MEMFD 0
#define PARTYWALL_SHMIPC_FILE 1

/* States that partywall_shmipc_hot_restart_state writes. */
#define PARTYWALL_HOT_RESTART_NEVER 0
#define PARTYWALL_HOT_RESTART_PENDING 1
#define PARTYWALL_HOT_RESTART_DONE 2
#define PARTYWALL_HOT_RESTART_TIMED_OUT 3

/* Makes a configuration with the default settings. */
int32_t partywall_shmipc_config_new(partywall_shmipc_config **config, partywall_error **error);
/* Frees a configuration. NULL is allowed. */
int32_t partywall_shmipc_config_free(partywall_shmipc_config *config);
/* Sets one setting, as partywall_config_set does. */
int32_t partywall_shmipc_config_set(partywall_shmipc_config *config, const char *key,
                                    uint64_t value, partywall_error **error);
int32_t partywall_shmipc_config_set_text(partywall_shmipc_config *config, const char *key,
                                         const char *value, partywall_error **error);
/*
 * Adds a class of slices of `size` bytes, which get `percent` of the region. The first one replaces
 * the default classes. Together they must get 100.
 */
int32_t partywall_shmipc_config_add_slices(partywall_shmipc_config *config, uint32_t size,
                                           uint32_t percent);

/* Makes the protocol. Its client sessions share one region. `config` may be NULL. */
int32_t partywall_shmipc_new(partywall_shmipc_config *config, partywall_shmipc **shmipc,
                             partywall_error **error);
/* Frees the handle. Its sessions and listeners go on. NULL is allowed. */
int32_t partywall_shmipc_free(partywall_shmipc *shmipc);
/* Makes a listener serve clients of shmipc, too. Clients of our own protocol are served as before. */
int32_t partywall_session_listener_add_shmipc(partywall_session_listener *listener,
                                         partywall_shmipc *shmipc, partywall_error **error);
/* Opens a session with a server of shmipc, as partywall_session_connect does with one of our own. */
int32_t partywall_shmipc_connect(partywall_shmipc *shmipc, const char *address,
                                 partywall_config *config, partywall_loop *loop, uint64_t tag,
                                 partywall_session **session, partywall_error **error);
/*
 * Sends the clients of all accepted sessions to the process that listens at the address now.
 * `epoch` is at least 1, and another than before. Streams in use go on. It is over after 2 s at most.
 */
int32_t partywall_shmipc_hot_restart(partywall_shmipc *shmipc, uint64_t epoch,
                                     partywall_error **error);
/* Writes the state of the last hot restart. */
int32_t partywall_shmipc_hot_restart_state(partywall_shmipc *shmipc, int32_t *state);

/* ---- Links ------------------------------------------------------------------------------- */

/*
 * Keys of partywall_link_config_set, with their defaults where they differ from those above:
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
/* Messages flow over a new connection. */
#define PARTYWALL_LINK_EVENT_ATTACHED 1
/* The connection has ended; a client attaches again by itself. */
#define PARTYWALL_LINK_EVENT_DETACHED 2
/* An attempt to attach has failed; a client tries again by itself. */
#define PARTYWALL_LINK_EVENT_REFUSED 3
/* This end is in another epoch. */
#define PARTYWALL_LINK_EVENT_EPOCH 4
/* A later process has opened this end, so this one attaches no more. */
#define PARTYWALL_LINK_EVENT_FENCED 5
/* The files of both ends contradict each other; both keep all bytes until an operator decides. */
#define PARTYWALL_LINK_EVENT_QUARANTINED 6
/* After a reboot without a good end: messages that were sent may be lost. */
#define PARTYWALL_LINK_EVENT_LOSS_POSSIBLE 7
/* After a reboot without a good end: messages that were acknowledged may come again. */
#define PARTYWALL_LINK_EVENT_REPEAT_POSSIBLE 8
/* The file that the link had in this boot is gone; a new one begins empty. */
#define PARTYWALL_LINK_EVENT_FILE_REPLACED 9

/*
 * An event of a link. `is_resumed` is 1 if the peer's stream goes on where it was on the last
 * connection; it is 0 for a new one, or one of a peer that has lost its state. `is_farewell` is 1 if
 * the connection ended because the peer closed its end. `epoch` is the number of the new epoch.
 * `text` describes the event for people, with the reason; a longer one is cut.
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
/* Makes a copy of a configuration, with the same group. */
int32_t partywall_link_config_copy(partywall_link_config *config, partywall_link_config **copy,
                                   partywall_error **error);
/* Frees a configuration. NULL is allowed. */
int32_t partywall_link_config_free(partywall_link_config *config);
/* Sets one setting, as partywall_config_set does. */
int32_t partywall_link_config_set(partywall_link_config *config, const char *key, uint64_t value,
                                  partywall_error **error);

/*
 * Links start no thread: whichever thread waits for a link, its client or its server, drives the
 * sockets and timers of their group, which is a group of their own unless they are put into one. A
 * link that nobody waits for does not advance, unless its group is in a loop.
 */

/* Makes a group without links. */
int32_t partywall_link_group_new(partywall_link_group **group, partywall_error **error);
/* Frees the handle of a group, and removes the group from its loop. NULL is allowed. */
int32_t partywall_link_group_free(partywall_link_group *group);
/* Makes the clients and servers of a configuration put their links into a group. */
int32_t partywall_link_config_set_group(partywall_link_config *config, partywall_link_group *group,
                                        partywall_error **error);
/*
 * Drives the links of a group until one of them has a message, room or another state, and writes
 * the number of such links, which is 0 if there were none in time. Later calls count a link only for
 * unreceived messages, so attempt on every link what is waited for.
 */
int32_t partywall_link_group_poll(partywall_link_group *group, size_t *count, int64_t timeout_ns,
                                  partywall_error **error);
/*
 * Writes a descriptor for another event loop. When it is readable, or the timer below is due, call
 * partywall_link_group_poll with timeout 0, and then attempt on every link what is waited for. Unlike
 * a loop's, it is not readable while messages have merely not been received. Never read from the
 * descriptor, and never close it.
 */
int32_t partywall_link_group_fd(partywall_link_group *group, int32_t *fd);
/* Writes after how many nanoseconds the group's next timer is due; -1 if none is set. */
int32_t partywall_link_group_next_timer(partywall_link_group *group, int64_t *timeout_ns);
/*
 * Adds a group to a loop, which reports `tag` as readable while links of the group have events. Then
 * call partywall_link_group_poll with timeout 0, and attempt on every link what is waited for.
 */
int32_t partywall_loop_add_links(partywall_loop *loop, partywall_link_group *group, uint64_t tag,
                                 partywall_error **error);

/*
 * Makes a client called `name`, which keeps its links in files of `directory`; in memory if that is
 * NULL. The directory belongs to this user alone. `config` may be NULL.
 */
int32_t partywall_link_client_new(const char *directory, const char *name,
                                  partywall_link_config *config, partywall_link_client **client,
                                  partywall_error **error);
/* Frees a client. Its links stay. NULL is allowed. */
int32_t partywall_link_client_free(partywall_link_client *client);
/*
 * Opens the link called `name` to the server called `server` at `address`. Does not wait for the
 * server: messages are kept until it is there.
 */
int32_t partywall_link_connect(partywall_link_client *client, const char *address,
                               const char *server, const char *name, partywall_link **link,
                               partywall_error **error);
/* Listens for links of the end called `name` at `address`. `directory` is as of a client. */
int32_t partywall_link_server_bind(const char *address, const char *directory, const char *name,
                                   partywall_link_config *config, partywall_link_server **server,
                                   partywall_error **error);
/* Stops listening, and frees the server. NULL is allowed. */
int32_t partywall_link_server_free(partywall_link_server *server);
/* Returns the next link that a client attaches. PARTYWALL_TIMED_OUT: none came in time. */
int32_t partywall_link_server_accept(partywall_link_server *server, partywall_link **link,
                                     int64_t timeout_ns, partywall_error **error);

/*
 * Copies why the server has refused a connection last, as partywall_listener_address copies an
 * address; a text of length 0 if it has refused none.
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
 * Frees the handle of a link. A client's link is then closed without waiting: a peer that is attached
 * receives PARTYWALL_FINISHED. A server's link stays open until its server is freed. Both ends can go
 * on later. NULL is allowed.
 */
int32_t partywall_link_free(partywall_link *link);
/*
 * Closes a link in good order and frees its handle, whatever the status: the peer receives
 * PARTYWALL_FINISHED. Waits until the system has all that was sent, and for a connection as long as
 * there is none. PARTYWALL_TIMED_OUT: both ends go on later. PARTYWALL_BUSY: another call uses the
 * link; it was freed, but not closed.
 */
int32_t partywall_link_close(partywall_link *link, int64_t timeout_ns, partywall_error **error);
/* Sends a copy of `len` bytes. The link keeps them until the peer has acknowledged them. */
int32_t partywall_link_send(partywall_link *link, const void *data, size_t len, int64_t timeout_ns,
                            partywall_error **error);
/* Receives the next message. PARTYWALL_FINISHED: the peer has closed its end. */
int32_t partywall_link_recv(partywall_link *link, partywall_link_message **message,
                            int64_t timeout_ns, partywall_error **error);
/*
 * Copies the name of the link, or that of the end at the peer, as partywall_listener_address copies
 * an address. A server distinguishes its clients by them.
 */
int32_t partywall_link_name(partywall_link *link, void *buffer, size_t capacity, size_t *len,
                            partywall_error **error);
int32_t partywall_link_peer_name(partywall_link *link, void *buffer, size_t capacity, size_t *len,
                                 partywall_error **error);
/*
 * Waits until a connection is attached. After PARTYWALL_TIMED_OUT, partywall_link_next_event says
 * why none was.
 */
int32_t partywall_link_wait_attached(partywall_link *link, int64_t timeout_ns,
                                     partywall_error **error);
/*
 * Waits until every message that was sent is with the system, or where the peer reads it. A thread
 * that then does other work calls this first. Waits for a connection if there is none.
 */
int32_t partywall_link_wait_sent(partywall_link *link, int64_t timeout_ns, partywall_error **error);
/*
 * Waits until the peer has acknowledged every message that was sent. A peer that is gone
 * acknowledges nothing.
 */
int32_t partywall_link_wait_acked(partywall_link *link, int64_t timeout_ns,
                                  partywall_error **error);
/* Delivers every message again that was not acknowledged. */
int32_t partywall_link_rewind(partywall_link *link, partywall_error **error);
/* Writes how many bytes of messages the peer has not acknowledged. */
int32_t partywall_link_unacked_bytes(partywall_link *link, uint64_t *bytes,
                                     partywall_error **error);
/*
 * Writes the number of the sent stream, and the position in it at which the next message will begin,
 * or a lower one close to that. After a restart both are the same, unless a message was sent in
 * between: so a sender that stores them before each message knows whether its last one is kept.
 */
int32_t partywall_link_sent_position(partywall_link *link, uint64_t *stream, uint64_t *position,
                                     partywall_error **error);
/* Writes the state of the link: PARTYWALL_LINK_DETACHED and so on. */
int32_t partywall_link_status(partywall_link *link, int32_t *status);
/* Copies a description of the state for logs, with the transport and the peer. */
int32_t partywall_link_status_text(partywall_link *link, void *buffer, size_t capacity,
                                   size_t *len, partywall_error **error);
/*
 * Takes the oldest event of the link, and writes it; waits for one. `size` is
 * sizeof(partywall_link_event). Calls that send and receive do not fail when a connection ends; its
 * events say so. The link keeps the first 1024 of them. PARTYWALL_EMPTY: there is none now. Events
 * from before a link is fenced or in quarantine come first, then the number of that error.
 */
int32_t partywall_link_next_event(partywall_link *link, partywall_link_event *event, size_t size,
                                  int64_t timeout_ns, partywall_error **error);

/* Writes where the bytes of a message lie. They stay there until the message is freed. */
int32_t partywall_link_message_data(partywall_link_message *message, const void **data,
                                    size_t *len);
/*
 * Writes the delivery count: 1, and one more for each earlier owner of this end that received the
 * message and did not acknowledge it.
 */
int32_t partywall_link_message_attempt(partywall_link_message *message, uint32_t *attempt);
/* Writes the position of the message in the peer's stream. */
int32_t partywall_link_message_position(partywall_link_message *message, uint64_t *position);
/*
 * Acknowledges the message with all before it, and frees it, whatever the status but
 * PARTYWALL_BUSY.
 */
int32_t partywall_link_message_ack(partywall_link_message *message, partywall_error **error);
/*
 * Sends an answer and acknowledges the message, both or neither. Frees the message, whatever the
 * status but PARTYWALL_BUSY. One that was not acknowledged, also for PARTYWALL_ARGUMENT, comes
 * again.
 */
int32_t partywall_link_message_reply(partywall_link_message *message, const void *data, size_t len,
                                     int64_t timeout_ns, partywall_error **error);
/* Frees a message. One that was not acknowledged comes again. NULL is allowed. */
int32_t partywall_link_message_free(partywall_link_message *message);

#ifdef __cplusplus
}
#endif

#endif
