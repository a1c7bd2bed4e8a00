// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * The peer: the process at the other end of a connection, as the kernel attests it.
 *
 * @param credentials the process and its user; null if the kernel attests none, as over TCP
 * @param distrust why the peer is not trusted; null if it is trusted
 * @param description a text about the peer for logs
 */
public record Peer(Credentials credentials, Distrust distrust, String description) {
    /**
     * The peer process and its user.
     *
     * @param pid the process, as this process sees it
     * @param uid the user, of 32 bits without a sign
     * @param gid the primary group, of 32 bits without a sign
     */
    public record Credentials(int pid, int uid, int gid) {}

    /** The reason why a peer is not trusted. */
    public enum Distrust {
        /** The configuration trusts no peer, or no peer of this user. */
        POLICY,
        /** The kernel attests no process and user for the connection, as over TCP. */
        NO_CREDENTIALS,
        /** The peer belongs to another user. */
        OTHER_USER,
        /** The peer is in another pid namespace. */
        OTHER_PID_NAMESPACE,
        /** The peer is in another user namespace. */
        OTHER_USER_NAMESPACE,
        /** The namespaces of the peer cannot be read. */
        UNKNOWN_NAMESPACES,
        /** The kernel knows no process with the pid of the peer. */
        NO_PROCESS,
        /** A reason of a later version of the library, which this version does not know. */
        UNKNOWN
    }

    /** Returns whether the peer is trusted not to change the bytes of messages that it has sent. */
    public boolean isTrusted() {
        return distrust == null;
    }
}
