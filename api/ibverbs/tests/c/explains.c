/* A wrong key and a wrong attribute, twice each: the library explains both once. */
#include "loopback.h"

int main(void) {
    struct loopback one = loopback();
    struct ibv_qp_attr attr = {.path_mtu = 99};
    for (int i = 0; i < 2; i++)
        CHECK(ibv_modify_qp(one.qp[0], &attr, IBV_QP_PATH_MTU) == EINVAL);
    one.mr->rkey ^= 0x5555;
    CHECK(!post_write(&one, 0, 7, 0, 8) && wait_one(&one).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!post_write(&one, 0, 8, 0, 8) && wait_one(&one).status == IBV_WC_WR_FLUSH_ERR);
    end(&one);
    puts("explained");
    return 0;
}
