/* 1RMA from C: a client reads, writes and rekeys a server's memory, encrypted and without a connection. The
 * grant goes over a Unix socket, which no other user can read; between hosts it goes over TLS.
 *
 * rma_read serve udp SOCKET      prints that it listens, and ends when its client does
 * rma_read client udp SOCKET     (or shm in place of udp) */
#include <errno.h>
#include <remora/rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { LENGTH = 1 << 20, SECOND = 1000, PATIENCE = 600 * SECOND };

static void must(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, remora_error(), strerror(error));
        exit(1);
    }
}

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

struct nic {
    struct remora_context *context;
    struct remora_pd *pd;
    struct remora_rma *rma;
    struct remora_rma_region *region;
    unsigned char *memory;
};

static struct nic open_nic(const char *port, uint32_t rights) {
    struct nic nic = {0};
    struct remora_device_attr device = {0};
    struct remora_rma_attr attr;
    device.port = strcmp(port, "udp") == 0 ? REMORA_PORT_UDP : REMORA_PORT_SHM;
    /* Keys are derived from the address that the server sees. */
    device.address = device.port == REMORA_PORT_UDP ? "127.0.0.1:0" : NULL;
    /* A thread drives the NIC: peers are served while this program waits for something else. */
    device.dedicated = 1;
    must(remora_open(&device, &nic.context), "open");
    must(remora_alloc_pd(nic.context, &nic.pd), "domain");
    must(remora_rma_attr_default(&attr), "attributes");
    attr.timeout_us = 4000000; /* Valgrind may slow the peer down */
    must(remora_open_rma(nic.context, &attr, &nic.rma), "1RMA");
    nic.memory = aligned_alloc(4096, LENGTH);
    check(nic.memory != NULL, "memory");
    memset(nic.memory, 0, LENGTH);
    must(remora_rma_reg_mr(nic.rma, nic.pd, nic.memory, LENGTH, rights, NULL, &nic.region), "region");
    return nic;
}

static void close_nic(struct nic *nic) {
    must(remora_rma_dereg_mr(nic->region), "deregister");
    free(nic->memory);
    must(remora_close_rma(nic->rma), "1RMA");
    must(remora_dealloc_pd(nic->pd), "domain");
    must(remora_close(nic->context), "close");
}

/* Over shm a connected queue pair gives both devices their link; it transfers nothing. */
static struct remora_qp *queue_pair(struct nic *nic) {
    struct remora_qp_attr attr;
    struct remora_cq *cq;
    struct remora_qp *qp;
    must(remora_create_cq(nic->context, 4, &cq), "completion queue");
    must(remora_qp_attr_default(&attr), "attributes");
    attr.connect_timeout_ms = PATIENCE;
    must(remora_create_qp(nic->pd, cq, &attr, &qp), "queue pair");
    must(remora_destroy_cq(cq), "completion queue");
    return qp;
}

static int unix_socket(const char *path, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    check(strlen(path) < sizeof address->sun_path, "path");
    strcpy(address->sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    check(fd >= 0, "socket");
    return fd;
}

/* 0: the other side has hung up. */
static int receive(int fd, void *into, size_t size) {
    return recv(fd, into, size, MSG_WAITALL) == (ssize_t)size;
}

static void tell(int fd, const void *bytes, size_t size) {
    check(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size, "send");
}

static int serve(const char *port, const char *path) {
    const uint32_t all = REMORA_RMA_RIGHT_READ | REMORA_RMA_RIGHT_WRITE | REMORA_RMA_RIGHT_REKEY;
    struct nic nic = open_nic(port, all);
    struct remora_listener *listener;
    struct remora_request *request;
    struct sockaddr_un address;
    struct remora_qp *qp = NULL;
    for (size_t at = 0; at < LENGTH; at++) nic.memory[at] = (unsigned char)(at / 64 + at);
    int listening = unix_socket(path, &address);
    umask(077); /* the socket is for this user alone */
    check(bind(listening, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listening, 1) == 0, "listen");
    must(remora_listen("127.0.0.1:0", &listener), "listen");
    uint16_t tcp = remora_listener_port(listener);
    puts("listens");
    fflush(stdout);

    int client = accept(listening, NULL, NULL);
    check(client >= 0, "accept");
    tell(client, &tcp, sizeof tcp);
    if (strcmp(port, "shm") == 0) {
        must(remora_get_request(listener, PATIENCE, &request), "request");
        qp = queue_pair(&nic);
        must(remora_accept(request, qp), "accept");
    }
    /* Each question is answered with a grant under the present key. No table of clients is kept. */
    struct remora_rma_identity who;
    while (receive(client, &who, sizeof who)) {
        struct remora_rma_grant grant;
        must(remora_rma_grant(nic.region, &who, all, NULL, &grant), "grant");
        tell(client, &grant, sizeof grant);
    }
    printf("%.5s\n", (char *)nic.memory);
    close(client);
    close(listening);
    unlink(path);
    if (qp != NULL) must(remora_destroy_qp(qp), "queue pair");
    must(remora_close_listener(listener), "listener");
    close_nic(&nic);
    return 0;
}

/* One transfer, waited for; its status. */
static uint32_t run(struct remora_rma_portal *portal, const struct remora_rma_wr *wr) {
    struct remora_rma_wc wc;
    must(remora_rma_post(portal, wr), "post");
    int taken = remora_rma_wait(portal, 1, &wc, PATIENCE);
    must(taken < 0 ? -taken : 0, "wait");
    return wc.status;
}

/* Reads the whole region by four transfers at once, which end in any order. */
static void read_all(struct nic *nic, struct remora_rma_portal *portal, const struct remora_rma_grant *grant) {
    struct remora_rma_wr wr = {0};
    struct remora_rma_wc wc[4];
    int ended = 0;
    wr.local = nic->region;
    wr.grant = grant;
    wr.opcode = REMORA_RMA_READ;
    wr.timeout_ms = PATIENCE;
    wr.length = LENGTH / 4;
    for (wr.wr_id = 0; wr.wr_id < 4; wr.wr_id++) {
        wr.local_offset = wr.remote_offset = wr.wr_id * wr.length;
        must(remora_rma_post(portal, &wr), "post");
    }
    while (ended < 4) {
        int taken = remora_rma_poll(portal, 4, wc);
        must(taken < 0 ? -taken : 0, "poll");
        for (int at = 0; at < taken; at++) must(wc[at].status == REMORA_RMA_OK ? 0 : EIO, "read");
        ended += taken;
    }
    for (size_t at = 0; at < LENGTH; at++) {
        if (nic->memory[at] != (unsigned char)(at / 64 + at)) must(EIO, "another byte");
    }
    printf("read %d bytes by %d transfers\n", LENGTH, ended);
}

static void ask(int server, struct remora_rma_portal *portal, struct remora_rma_grant *grant) {
    struct remora_rma_identity own;
    must(remora_rma_identity(portal, &own), "identity");
    tell(server, &own, sizeof own);
    check(receive(server, grant, sizeof *grant), "grant");
}

static int client(const char *port, const char *path) {
    struct nic nic = open_nic(port, 0);
    struct remora_rma_portal *portal;
    struct remora_rma_grant grant;
    struct sockaddr_un address;
    struct remora_qp *qp = NULL;
    uint64_t length;
    uint16_t tcp;
    int server = unix_socket(path, &address);
    check(connect(server, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    check(receive(server, &tcp, sizeof tcp), "port");
    if (strcmp(port, "shm") == 0) {
        char listener[32];
        snprintf(listener, sizeof listener, "127.0.0.1:%u", tcp);
        qp = queue_pair(&nic);
        must(remora_connect(qp, listener), "connect");
    }
    must(remora_rma_create_portal(nic.rma, nic.pd, 32, &portal), "portal");
    ask(server, portal, &grant);
    must(remora_rma_grant_length(&grant, &length), "grant");
    check(length == LENGTH, "length");
    must(remora_rma_reach(nic.rma, &grant), "reach");
    read_all(&nic, portal, &grant);

    struct remora_rma_wr wr = {0};
    wr.local = nic.region;
    wr.grant = &grant;
    wr.timeout_ms = PATIENCE;
    memcpy(nic.memory, "HELLO", 5);
    wr.opcode = REMORA_RMA_WRITE;
    wr.length = 5;
    printf("write %u\n", run(portal, &wr));
    memset(nic.memory, 0x5a, 16); /* a program takes random bytes */
    wr.opcode = REMORA_RMA_REKEY;
    wr.length = 16;
    printf("rekey %u\n", run(portal, &wr));
    wr.opcode = REMORA_RMA_READ;
    wr.length = 5;
    printf("read under the old key %u\n", run(portal, &wr));
    ask(server, portal, &grant);
    uint32_t status = run(portal, &wr);
    printf("read under the new key %u: %.5s\n", status, (char *)nic.memory);

    close(server);
    must(remora_rma_destroy_portal(portal), "portal");
    if (qp != NULL) must(remora_destroy_qp(qp), "queue pair");
    close_nic(&nic);
    return 0;
}

int main(int count, char **words) {
    if (count == 4 && strcmp(words[1], "serve") == 0) return serve(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "client") == 0) return client(words[2], words[3]);
    fprintf(stderr, "usage: rma_read serve|client shm|udp SOCKET\n");
    return 2;
}
