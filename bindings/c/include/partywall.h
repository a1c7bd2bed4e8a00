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
typedef struct partywall_message partywall_message;
typedef struct partywall_reservation partywall_reservation;
typedef struct partywall_session partywall_session;
typedef struct partywall_session_listener partywall_session_listener;
typedef struct partywall_stream partywall_stream;

/* Statuses that programs compare with. SPEC.md lists all others. */
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
#define PARTYWALL_STREAM_STOPPED 406
#define PARTYWALL_STREAM_RESET 407
#define PARTYWALL_FINISHED_HERE 408
#define PARTYWALL_STOPPED_HERE 409
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

/* Makes a configuration with the default settings. Objects copy the configuration they are given. */
int32_t partywall_config_new(partywall_config **config, partywall_error **error);
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
 * Writes PARTYWALL_TRANSPORT_SHARED_MEMORY or _SOCKET: the transport with which the channel began. It
 * moves only if its configuration says so (`begin`).
 */
int32_t partywall_channel_transport(partywall_channel *channel, int32_t *transport);
/*
 * Ends both directions and frees the channel. The peer receives every sent message, then
 * PARTYWALL_FINISHED. Views of its messages end; messages of their own stay. NULL is allowed.
 */
int32_t partywall_channel_free(partywall_channel *channel);

/*
 * Sends a copy of `len` bytes. `data` may be NULL if `len` is 0. PARTYWALL_FULL: there is no room
 * now. PARTYWALL_TIMED_OUT: there was none in time. PARTYWALL_FINISHED, PARTYWALL_DISCONNECTED: the
 * peer does not receive any more.
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
/* Frees a loop. Its objects stay, but no loop reports their events any more. NULL is allowed. */
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
/* Waits until the session is over and the process may exit. PARTYWALL_TIMED_OUT: it is not. */
int32_t partywall_session_wait_finished(partywall_session *session, int64_t timeout_ns,
                                        partywall_error **error);

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

/* Makes a configuration of links with the default settings. */
int32_t partywall_link_config_new(partywall_link_config **config, partywall_error **error);
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
 * the number of such links, which is 0 if there were none in time.
 */
int32_t partywall_link_group_poll(partywall_link_group *group, size_t *count, int64_t timeout_ns,
                                  partywall_error **error);
/* Adds a group to a loop, which reports `tag` as readable while links of the group have events. */
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

/* Frees the handle of a link without closing it: both ends go on later. NULL is allowed. */
int32_t partywall_link_free(partywall_link *link);
/*
 * Closes a link in good order and frees its handle, whatever the status: the peer receives
 * PARTYWALL_FINISHED. PARTYWALL_BUSY: another call uses the link; it was freed, but not closed.
 */
int32_t partywall_link_close(partywall_link *link, int64_t timeout_ns, partywall_error **error);
/* Sends a copy of `len` bytes. The link keeps them until the peer has acknowledged them. */
int32_t partywall_link_send(partywall_link *link, const void *data, size_t len, int64_t timeout_ns,
                            partywall_error **error);
/* Receives the next message. PARTYWALL_FINISHED: the peer has closed its end. */
int32_t partywall_link_recv(partywall_link *link, partywall_link_message **message,
                            int64_t timeout_ns, partywall_error **error);
/* Waits until a connection is attached. */
int32_t partywall_link_wait_attached(partywall_link *link, int64_t timeout_ns,
                                     partywall_error **error);
/* Waits until the peer has acknowledged every message that was sent. */
int32_t partywall_link_wait_acked(partywall_link *link, int64_t timeout_ns,
                                  partywall_error **error);
/* Delivers every message again that was not acknowledged. */
int32_t partywall_link_rewind(partywall_link *link, partywall_error **error);
/* Writes how many bytes of messages the peer has not acknowledged. */
int32_t partywall_link_unacked_bytes(partywall_link *link, uint64_t *bytes,
                                     partywall_error **error);
/* Writes the state of the link: PARTYWALL_LINK_DETACHED and so on. */
int32_t partywall_link_status(partywall_link *link, int32_t *status);

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
/* Acknowledges the message with all before it, and frees it, whatever the status. */
int32_t partywall_link_message_ack(partywall_link_message *message, partywall_error **error);
/* Sends an answer and acknowledges the message, both or neither, and frees it, whatever the status. */
int32_t partywall_link_message_reply(partywall_link_message *message, const void *data, size_t len,
                                     int64_t timeout_ns, partywall_error **error);
/* Frees a message. One that was not acknowledged comes again. NULL is allowed. */
int32_t partywall_link_message_free(partywall_link_message *message);

#ifdef __cplusplus
}
#endif

#endif
