/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A link that survives kill -9 of either side: lines of alice's standard input reach bob once each.
 * `link recv DIRECTORY ADDRESS` or `link send DIRECTORY ADDRESS`, each with a directory of its own. */
#include <partywall.h>
#include <stdio.h>
#include <string.h>

static int check(int32_t status, partywall_error *error) {
    if (status != PARTYWALL_OK && status != PARTYWALL_FINISHED) {
        fprintf(stderr, "%d: %s\n", (int)status, partywall_error_message(error));
    }
    return status != PARTYWALL_OK;
}

static int send_lines(partywall_link *link) {
    partywall_error *error = NULL;
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        /*
         * A link advances only while a thread waits for it. This thread waits for input next, so it
         * first waits until the peer has acknowledged the message.
         */
        if (check(partywall_link_send(link, line, strlen(line), -1, &error), error) ||
            check(partywall_link_wait_acked(link, -1, &error), error)) {
            return 1;
        }
    }
    return check(partywall_link_close(link, -1, &error), error);
}

static int print_lines(partywall_link *link) {
    partywall_error *error = NULL;
    partywall_link_message *message = NULL;
    const void *data;
    size_t len;
    int32_t status;
    while ((status = partywall_link_recv(link, &message, -1, &error)) == PARTYWALL_OK) {
        partywall_link_message_data(message, &data, &len);
        fwrite(data, 1, len, stdout);
        fflush(stdout); /* a line is printed before it is acknowledged */
        if (check(partywall_link_message_ack(message, &error), error)) {
            return 1;
        }
    }
    check(status, error);
    return status != PARTYWALL_FINISHED;
}

int main(int argc, char **argv) {
    partywall_error *error = NULL;
    partywall_link *link = NULL;
    if (argc == 4 && strcmp(argv[1], "send") == 0) {
        partywall_link_client *client = NULL;
        return check(partywall_link_client_new(argv[2], "alice", NULL, &client, &error), error) ||
               check(partywall_link_connect(client, argv[3], "bob", "lines", &link, &error),
                     error) ||
               send_lines(link);
    }
    if (argc == 4 && strcmp(argv[1], "recv") == 0) {
        partywall_link_server *server = NULL;
        return check(partywall_link_server_bind(argv[3], argv[2], "bob", NULL, &server, &error),
                     error) ||
               check(partywall_link_server_accept(server, &link, -1, &error), error) ||
               print_lines(link);
    }
    return fputs("usage: link send|recv DIRECTORY ADDRESS\n", stderr), 2;
}
