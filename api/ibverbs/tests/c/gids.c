/* The GID table of a device with several addresses, and datagrams to each of them. A datagram to an address that the
   program has not named comes, too, and its header says to which address. */
#include "loopback.h"
#include <arpa/inet.h>

enum { KEY = 0x11111111, GRH = 40, LENGTH = 64, MOST = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char memory[256];

static void start(void) {
    context = open_first();
    CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    CHECK((qp = ibv_create_qp(pd, &init)));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static struct ibv_ah *way(const union ibv_gid *to, int from) {
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    attr.grh.dgid = *to;
    attr.grh.sgid_index = from;
    attr.grh.hop_limit = 64;
    return ibv_create_ah(pd, &attr);
}

/* Sends a datagram from one entry to another, and looks at what comes. */
static void pass(const union ibv_gid *gids, int from, int to) {
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = GRH + LENGTH, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_receive;
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    struct ibv_ah *ah = way(&gids[to], from);
    CHECK(ah);
    struct ibv_sge data = {.addr = (uintptr_t)memory + GRH + LENGTH, .length = LENGTH, .lkey = mr->lkey};
    struct ibv_send_wr send = {.wr_id = 2, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.ud.ah = ah;
    send.wr.ud.remote_qpn = qp->qp_num;
    send.wr.ud.remote_qkey = KEY;
    memset(memory, 0, GRH + LENGTH);
    memset(memory + GRH + LENGTH, 0x40 + to, LENGTH);
    CHECK(!ibv_post_send(qp, &send, &bad));
    struct ibv_wc wc, received = {0};
    for (int left = 2; left > 0;) {
        int count = ibv_poll_cq(cq, 1, &wc);
        CHECK(count >= 0);
        if (count == 0) continue;
        CHECK(wc.status == IBV_WC_SUCCESS);
        if (wc.wr_id == 1) received = wc;
        left--;
    }
    CHECK(received.byte_len == GRH + LENGTH && memory[GRH] == 0x40 + to);
    struct ibv_ah_attr back;
    CHECK(!ibv_init_ah_from_wc(context, 1, &received, (struct ibv_grh *)memory, &back));
    CHECK(back.grh.sgid_index == to && !memcmp(&back.grh.dgid, &gids[from], sizeof back.grh.dgid));
    CHECK(!ibv_destroy_ah(ah));
}

int main(void) {
    start();
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port) && port.gid_tbl_len > 2 && port.gid_tbl_len <= MOST);
    struct ibv_gid_entry entries[MOST], entry;
    int count = ibv_query_gid_table(context, entries, MOST, 0);
    CHECK(count > 2);
    union ibv_gid gids[MOST], none = {.raw = {0}};
    for (int at = 0; at < count; at++) {
        CHECK(entries[at].gid_index == (uint32_t)at && entries[at].gid_type == IBV_GID_TYPE_ROCE_V2);
        CHECK(entries[at].ndev_ifindex != 0 && entries[at].port_num == 1);
        CHECK(!ibv_query_gid(context, 1, at, &gids[at]) && !memcmp(&gids[at], &entries[at].gid, sizeof *gids));
        CHECK(!ibv_query_gid_ex(context, 1, at, &entry, 0) && !memcmp(&entry, &entries[at], sizeof entry));
    }
    CHECK(!ibv_query_gid(context, 1, count, &gids[count]) && !memcmp(&gids[count], &none, sizeof none));
    CHECK(ibv_query_gid_ex(context, 1, count, &entry, 0) == ENODATA);
    CHECK(!way(&gids[0], count) && errno == ENODATA);
    CHECK(!way(&gids[0], port.gid_tbl_len) && errno == EINVAL);
    /* From IPv4 to IPv6 leads no way. */
    for (int to = 0; to < count; to++) {
        if (gids[to].raw[0] == 0xfd) CHECK(!way(&gids[to], 0) && errno);
    }
    /* The second address is one of IPv4, too, and nobody has named it. */
    pass(gids, 0, 1);
    for (int at = 0; at < count; at++) pass(gids, at, at);
    pass(gids, 1, 0);
    printf("%d entries\n", count);
}
