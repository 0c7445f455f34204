/* A program works with a peer in another process. Its child opens a device of its own, ends what it inherited and
   lives on; another child executes a program. The traffic goes on unharmed. */
#include "loopback.h"
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 50 };

struct facts {
    uint32_t qpn, rkey;
    uint64_t address;
};

/* One queue pair of this process is connected with one of the peer; the other one is left. */
static struct facts meet(struct loopback *own, int out, int in) {
    struct facts ours = {own->qp[0]->qp_num, own->mr->rkey, (uintptr_t)own->memory}, theirs;
    CHECK(write(out, &ours, sizeof ours) == sizeof ours);
    CHECK(read(in, &theirs, sizeof theirs) == sizeof theirs);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK(!ibv_modify_qp(own->qp[0], &attr, IBV_QP_STATE));
    move(own->context, own->qp[0], theirs.qpn);
    char ready;
    CHECK(write(out, "", 1) == 1 && read(in, &ready, 1) == 1);
    return theirs;
}

static void *peer(int out, int in) {
    struct loopback own = loopback();
    meet(&own, out, in);
    /* Its work is done by the NIC: it is passive until its partner has ended. */
    char last;
    CHECK(read(in, &last, 1) == 0);
    end(&own);
    exit(0);
}

/* Writes a pattern into the peer's memory and reads it back, so many times. */
static void works(struct loopback *own, struct facts to, int rounds) {
    for (int at = 0; at < rounds; at++) {
        memset(own->memory, at + 1, 64);
        memset(own->memory + 512, 0, 64);
        for (int read = 0; read < 2; read++) {
            struct ibv_sge sge = {.addr = (uintptr_t)own->memory + 512 * read, .length = 64, .lkey = own->mr->lkey};
            struct ibv_send_wr wr = {.wr_id = at, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
            wr.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
            wr.wr.rdma.remote_addr = to.address;
            wr.wr.rdma.rkey = to.rkey;
            CHECK(!ibv_post_send(own->qp[0], &wr, &bad));
            struct ibv_wc wc = wait_one(own);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)at);
        }
        CHECK(!memcmp(own->memory, own->memory + 512, 64));
    }
}

static void child(struct loopback *inherited, int out, int in) {
    struct loopback own = loopback();
    CHECK(post_write(inherited, 0, 1, 0, 512) == EIO);
    CHECK(!ibv_destroy_qp(inherited->qp[0]) && !ibv_destroy_qp(inherited->qp[1]));
    CHECK(!ibv_dereg_mr(inherited->mr) && !ibv_destroy_cq(inherited->cq) && !ibv_dealloc_pd(inherited->pd));
    CHECK(!ibv_destroy_comp_channel(inherited->channel) && !ibv_close_device(inherited->context));
    CHECK(!post_write(&own, 0, 3, 0, 512) && wait_one(&own).status == IBV_WC_SUCCESS);
    /* It lives on while its parent works. */
    char told;
    CHECK(write(out, "", 1) == 1 && read(in, &told, 1) == 1);
    CHECK(!post_write(&own, 0, 4, 0, 512) && wait_one(&own).status == IBV_WC_SUCCESS);
    exit(0);
}

int main(void) {
    int there[2], back[2], down[2], up[2], status;
    char told;
    CHECK(!pipe(there) && !pipe(back) && !pipe(down) && !pipe(up));
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        close(there[1]);
        peer(back[1], there[0]);
    }
    struct loopback one = loopback();
    struct facts to = meet(&one, there[1], back[0]);
    works(&one, to, ROUNDS);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(there[1]);
        child(&one, up[1], down[0]);
    }
    works(&one, to, ROUNDS);
    CHECK(read(up[0], &told, 1) == 1);
    works(&one, to, ROUNDS);
    CHECK(write(down[1], "", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
    works(&one, to, ROUNDS);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    works(&one, to, ROUNDS);
    end(&one);
    close(there[1]);
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    puts("unharmed");
}
