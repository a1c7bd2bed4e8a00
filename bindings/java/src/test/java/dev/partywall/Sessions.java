// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.util.concurrent.FutureTask;

record Sessions(SessionListener listener, Session client, Session server) implements AutoCloseable {
    static Sessions open(String address, Config config) throws Exception {
        SessionListener listener = SessionListener.bind(address, config);
        FutureTask<Session> connecting = Pair.start(() -> Session.connect(listener.address(), config));
        Session server = listener.accept(Pair.SOON);
        return new Sessions(listener, connecting.get(), server);
    }

    @Override
    public void close() {
        client.close();
        server.close();
        listener.close();
    }
}
