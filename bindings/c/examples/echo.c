/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An echo over a channel. `echo serve ADDRESS` answers one client; `echo ADDRESS TEXT` asks. */
#include <partywall.h>
#include <stdio.h>
#include <string.h>

static int fail(partywall_error *error) {
    fprintf(stderr, "%s\n", partywall_error_message(error));
    partywall_error_free(error);
    return 1;
}

int main(int argc, char **argv) {
    int serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    partywall_error *error = NULL;
    partywall_channel *channel = NULL;
    partywall_listener *listener = NULL;
    const void *data;
    size_t len;
    if (argc != 3) {
        return fputs("usage: echo serve ADDRESS | echo ADDRESS TEXT\n", stderr), 2;
    }
    if (serves) {
        if (partywall_listener_bind(argv[2], NULL, &listener, &error) ||
            partywall_listener_accept(listener, &channel, -1, &error)) {
            return fail(error);
        }
        while (!partywall_channel_recv_view(channel, &data, &len, -1, NULL)) {
            partywall_channel_send(channel, data, len, -1, NULL);
        }
    } else {
        if (partywall_connect(argv[1], NULL, &channel, &error) ||
            partywall_channel_send(channel, argv[2], strlen(argv[2]), -1, &error) ||
            partywall_channel_recv_view(channel, &data, &len, -1, &error)) {
            return fail(error);
        }
        printf("%.*s\n", (int)len, (const char *)data);
    }
    partywall_channel_free(channel);
    partywall_listener_free(listener);
    return 0;
}
