/* StRoM's GET and consistency kernels from C. A server has a hash table and an object, deploys two kernels,
 * and then only waits; a client asks them, one round trip each.
 *
 * strom_get serve udp 127.0.0.1:0        prints the port of its listener, and ends when its input does
 * strom_get client udp 127.0.0.1:PORT    (or shm in place of udp) */
#include <remora/strom.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GET = 0x6e7, CHECK = 0xc64, COUNT = 0x411, LENGTH = 1 << 16, VALUES = 4096, OBJECT = 1 << 15, SLOTS = 8 };

struct server_data { /* by the server, when a client connects */
    uint64_t table;
};

struct slot { /* of the GET kernel's table */
    uint64_t keys[3], values[3];
    uint32_t lengths[3], zero;
};

struct lookup {
    uint64_t slot, key;
};

struct object {
    uint64_t address;
    uint32_t length, tries;
};

static void must(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, remora_error(), strerror(error));
        exit(1);
    }
}

struct nic {
    struct remora_context *context;
    struct remora_pd *pd;
    struct remora_cq *cq;
    struct remora_mr *mr;
    unsigned char *memory;
};

static struct nic open_nic(const char *port) {
    struct nic nic = {0};
    struct remora_device_attr attr = {0};
    attr.port = strcmp(port, "udp") == 0 ? REMORA_PORT_UDP : REMORA_PORT_SHM;
    attr.address = attr.port == REMORA_PORT_UDP ? "127.0.0.1:0" : NULL;
    must(remora_open(&attr, &nic.context), "open");
    must(remora_alloc_pd(nic.context, &nic.pd), "domain");
    must(remora_create_cq(nic.context, 64, &nic.cq), "completion queue");
    nic.memory = aligned_alloc(4096, LENGTH);
    if (nic.memory == NULL) exit(1);
    memset(nic.memory, 0, LENGTH);
    must(remora_reg_mr(nic.pd, nic.memory, LENGTH, REMORA_ACCESS_LOCAL_WRITE, &nic.mr), "region");
    return nic;
}

static void close_nic(struct nic *nic) {
    must(remora_dereg_mr(nic->mr), "deregister");
    free(nic->memory);
    must(remora_destroy_cq(nic->cq), "completion queue");
    must(remora_dealloc_pd(nic->pd), "domain");
    must(remora_close(nic->context), "close");
}

static struct remora_qp *queue_pair(struct nic *nic, const void *server_data, uint32_t length) {
    struct remora_qp_attr attr;
    struct remora_qp *qp;
    must(remora_qp_attr_default(&attr), "attributes");
    attr.flags = REMORA_QP_STROM;
    attr.private_data = server_data;
    attr.private_len = length;
    must(remora_create_qp(nic->pd, nic->cq, &attr, &qp), "queue pair");
    return qp;
}

/* Key k is in slot k % SLOTS, and its value is k + 1 times a letter. */
static void fill(struct nic *nic) {
    for (uint64_t key = 0; key < 3 * SLOTS; key++) {
        struct slot *slot = (struct slot *)nic->memory + key % SLOTS;
        unsigned char *value = nic->memory + VALUES + 64 * key;
        memset(value, 'a' + (int)key, key + 1);
        slot->keys[key / SLOTS] = key;
        slot->values[key / SLOTS] = (uint64_t)(uintptr_t)value;
        slot->lengths[key / SLOTS] = (uint32_t)key + 1;
    }
    memset(nic->memory + OBJECT, 'o', 1000);
    uint64_t sum = remora_crc64(nic->memory + OBJECT, 1000);
    memcpy(nic->memory + OBJECT + 1000, &sum, sizeof sum);
}

static int serve(const char *port, const char *address) {
    struct nic nic = open_nic(port);
    struct remora_kernel *kernels[3];
    struct remora_listener *listener;
    struct remora_request *request;
    fill(&nic);
    must(remora_deploy_kernel(nic.pd, REMORA_GET_KERNEL, GET, nic.mr, 2, 4096, &kernels[0]), "GET");
    must(remora_deploy_kernel(nic.pd, REMORA_CONSISTENCY_KERNEL, CHECK, nic.mr, 2, 4096, &kernels[1]), "consistency");
    must(remora_deploy_kernel(nic.pd, REMORA_HYPERLOGLOG_KERNEL, COUNT, nic.mr, 1, 8, &kernels[2]), "HyperLogLog");
    must(remora_listen(address, &listener), "listen");
    printf("%u\n", remora_listener_port(listener));
    fflush(stdout);
    must(remora_get_request(listener, 60000, &request), "request");
    struct server_data server_data = {(uint64_t)(uintptr_t)nic.memory};
    struct remora_qp *qp = queue_pair(&nic, &server_data, sizeof server_data);
    must(remora_accept(request, qp), "accept");
    while (getchar() != EOF) {}
    puts("served");
    must(remora_destroy_qp(qp), "queue pair");
    for (int kernel = 0; kernel < 3; kernel++) must(remora_remove_kernel(kernels[kernel]), "remove");
    close_nic(&nic);
    return 0;
}

static int client(const char *port, const char *address) {
    struct nic nic = open_nic(port);
    struct remora_qp *qp = queue_pair(&nic, NULL, 0);
    struct remora_answers *answers;
    struct remora_answer answer;
    struct server_data server_data;
    uint32_t tags[4];
    char value[4096];
    must(remora_connect(qp, address), "connect");
    if ((remora_agreed(qp) & REMORA_QP_STROM) == 0) return 1;
    if (remora_peer_data(qp, &server_data, sizeof server_data) != sizeof server_data) return 1;
    must(remora_create_answers(nic.pd, 4, 4096, &answers), "answers");

    /* Four at a time, the last of which is not there. */
    for (uint64_t at = 0; at < 4; at++) {
        struct lookup lookup = {server_data.table + 3 * at % SLOTS * sizeof(struct slot), at == 3 ? 1000 : 3 * at};
        must(remora_post_rpc(GET, qp, answers, &lookup, sizeof lookup, &tags[at]), "GET");
    }
    for (int at = 3; at >= 0; at--) {
        must(remora_wait_answer(answers, nic.cq, tags[at], 60000, &answer, value, sizeof value), "answer");
        printf("%u: %.*s\n", answer.status, (int)answer.length, value);
    }
    struct object object = {server_data.table + OBJECT, 1000, 3};
    must(remora_post_rpc(CHECK, qp, answers, &object, sizeof object, &tags[0]), "check");
    must(remora_wait_answer(answers, nic.cq, tags[0], 60000, &answer, value, sizeof value), "answer");
    printf("%u: %u bytes of %c\n", answer.status, answer.length, value[answer.length - 1]);

    /* Bytes for a kernel: 512 values, of which 2 differ. */
    for (uint64_t at = 0; at < 512; at++) memcpy(nic.memory + 8 * at, &(uint64_t){at % 2}, 8);
    must(remora_post_rpc_write(COUNT, qp, answers, nic.memory, 4096, remora_lkey(nic.mr), &tags[0]), "count");
    must(remora_wait_answer(answers, nic.cq, tags[0], 60000, &answer, NULL, 0), "answer");
    must(remora_post_rpc(COUNT, qp, answers, "", 1, &tags[1]), "estimate");
    double estimate = 0;
    must(remora_wait_answer(answers, nic.cq, tags[1], 60000, &answer, &estimate, sizeof estimate), "answer");
    printf("%u: about %.0f\n", answer.status, estimate);

    must(remora_destroy_answers(answers), "answers");
    must(remora_destroy_qp(qp), "queue pair");
    close_nic(&nic);
    return 0;
}

int main(int count, char **words) {
    if (count == 4 && strcmp(words[1], "serve") == 0) return serve(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "client") == 0) return client(words[2], words[3]);
    fprintf(stderr, "usage: strom_get serve|client shm|udp ADDRESS\n");
    return 2;
}
