/* The interface goes down and comes up, the address goes and comes, the way becomes too narrow: the program is told,
   and queue pairs end by retries. Arguments: this host's address, another namespace, and the address there. */
#define _GNU_SOURCE
#include "loopback.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>
#include <sys/wait.h>

enum { PAIRS = 4, LENGTH = 4096 };

static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qps[PAIRS];
static char memory[LENGTH];

struct facts {
    union ibv_gid gid;
    uint32_t qpns[PAIRS], rkey;
    uint64_t address;
} ours, theirs;

static void run(const char *words) {
    if (system(words)) {
        fprintf(stderr, "%s failed\n", words);
        exit(1);
    }
}

static void connect_all(int out, int in) {
    CHECK(write(out, &ours, sizeof ours) == sizeof ours && read(in, &theirs, sizeof theirs) == sizeof theirs);
    for (int at = 0; at < PAIRS; at++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
        CHECK(!ibv_modify_qp(qps[at], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = theirs.qpns[at]};
        attr.min_rnr_timer = 12;
        attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .dgid = theirs.gid}};
        int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        /* A path MTU for which the interface is too narrow. */
        attr.path_mtu = IBV_MTU_4096;
        CHECK(ibv_modify_qp(qps[at], &attr, mask) == EINVAL);
        attr.path_mtu = IBV_MTU_1024;
        CHECK(!ibv_modify_qp(qps[at], &attr, mask));
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 3, .rnr_retry = 7};
        CHECK(!ibv_modify_qp(qps[at], &attr,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                 IBV_QP_MAX_QP_RD_ATOMIC));
    }
    char ready;
    CHECK(write(out, "", 1) == 1 && read(in, &ready, 1) == 1);
}

static void start(void) {
    struct ibv_pd *pd;
    context = open_first();
    CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
    ours.rkey = mr->rkey;
    ours.address = (uintptr_t)memory;
    CHECK(!ibv_query_gid(context, 1, 0, &ours.gid));
    for (int at = 0; at < PAIRS; at++) {
        struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
        init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
        CHECK((qps[at] = ibv_create_qp(pd, &init)));
        ours.qpns[at] = qps[at]->qp_num;
    }
}

static void passive(const char *namespace, const char *address, int out, int in) {
    char path[256], last;
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int space = open(path, O_RDONLY);
    CHECK(space >= 0 && !setns(space, CLONE_NEWNET) && !setenv("REMORA_ADDRESS", address, 1));
    start();
    connect_all(out, in);
    CHECK(read(in, &last, 1) == 0);
    exit(0);
}

/* The status of a message by this queue pair. */
static enum ibv_wc_status message(int which) {
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = LENGTH, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = which, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    struct ibv_wc wc;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = theirs.address;
    wr.wr.rdma.rkey = theirs.rkey;
    CHECK(!ibv_post_send(qps[which], &wr, &bad));
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    CHECK(wc.wr_id == (uint64_t)which);
    return wc.status;
}

/* Waits for the next event of the port, which must be this one. */
static void told(enum ibv_event_type wanted) {
    struct ibv_async_event event;
    do {
        CHECK(!ibv_get_async_event(context, &event));
        ibv_ack_async_event(&event);
    } while (event.event_type < IBV_EVENT_DEVICE_FATAL);
    if (event.event_type != wanted) {
        fprintf(stderr, "%s instead of %s\n", ibv_event_type_str(event.event_type), ibv_event_type_str(wanted));
        exit(1);
    }
    CHECK(event.element.port_num == 1);
}

static enum ibv_port_state state(void) {
    struct ibv_port_attr attr;
    CHECK(!ibv_query_port(context, 1, &attr));
    CHECK(attr.phys_state == (attr.state == IBV_PORT_ACTIVE ? 5 : 3));
    return attr.state;
}

/* Entries of the GID table; the first one goes to `entry`. */
static ssize_t gids(struct ibv_gid_entry *entry) {
    struct ibv_gid_entry all[8];
    ssize_t count = ibv_query_gid_table(context, all, 8, 0);
    if (count > 0) *entry = all[0];
    return count;
}

int main(int count, char **words) {
    int there[2], back[2], status;
    CHECK(count == 4 && !pipe(there) && !pipe(back));
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(there[1]);
        passive(words[2], words[3], back[1], there[0]);
    }
    start();
    connect_all(there[1], back[0]);
    struct ibv_gid_entry entry;
    CHECK(state() == IBV_PORT_ACTIVE && message(0) == IBV_WC_SUCCESS);
    CHECK(gids(&entry) == 1 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex == if_nametoindex("eth0"));
    CHECK(!memcmp(&entry.gid, &ours.gid, sizeof entry.gid));

    run("ip link set eth0 down");
    told(IBV_EVENT_PORT_ERR);
    CHECK(state() == IBV_PORT_DOWN && message(0) == IBV_WC_RETRY_EXC_ERR);
    run("ip link set eth0 up");
    told(IBV_EVENT_PORT_ACTIVE);
    CHECK(state() == IBV_PORT_ACTIVE && message(1) == IBV_WC_SUCCESS);

    char command[256];
    snprintf(command, sizeof command, "ip address del %s/24 dev eth0", words[1]);
    run(command);
    told(IBV_EVENT_GID_CHANGE);
    union ibv_gid gid, zero = {0};
    CHECK(state() == IBV_PORT_ACTIVE && gids(&entry) == 0);
    CHECK(!ibv_query_gid(context, 1, 0, &gid) && !memcmp(&gid, &zero, sizeof gid));
    CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == ENODATA);
    CHECK(message(1) == IBV_WC_RETRY_EXC_ERR);
    snprintf(command, sizeof command, "ip address add %s/24 dev eth0", words[1]);
    run(command);
    told(IBV_EVENT_GID_CHANGE);
    { ssize_t n = gids(&entry); fprintf(stderr, "DBG %zd type %d if %d eth0 %d\n", n, entry.gid_type, entry.ndev_ifindex, if_nametoindex("eth0")); }
    CHECK(gids(&entry) == 1 && !memcmp(&entry.gid, &ours.gid, sizeof entry.gid));
    CHECK(message(2) == IBV_WC_SUCCESS);

    run("ip link set eth0 mtu 1000");
    CHECK(message(3) == IBV_WC_RETRY_EXC_ERR);
    close(there[1]);
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    puts("told");
}
