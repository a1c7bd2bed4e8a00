// SPDX-License-Identifier: MIT OR Apache-2.0

/**
 * Netty over streams of sessions: channels whose bytes travel in shared memory, in the epoll event
 * loops of Netty 4.2.
 *
 * <pre>
 *   Bootstrap ─▶ PartywallChannel ──── stream ─┐
 *   ServerBootstrap ─▶ PartywallServerChannel  ├─ EpollLoop: one for each event loop of Netty
 *                        └─▶ PartywallChannel ─┘
 * </pre>
 */
package dev.partywall.netty;
