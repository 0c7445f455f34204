/* The same function by the private version of each release: tools of any rdma-core start. */
#include "check.h"
#include <infiniband/verbs.h>

#define RELEASE(number)                                                           \
    extern int gid_type_##number(struct ibv_context *, uint8_t, unsigned, int *); \
    __asm__(".symver gid_type_" #number ", ibv_query_gid_type@IBVERBS_PRIVATE_" #number)

RELEASE(25);
RELEASE(33);
RELEASE(34);
RELEASE(57);
RELEASE(59);
RELEASE(64);
RELEASE(65);

extern int create_cq_34(void);
__asm__(".symver create_cq_34, ibv_cmd_create_cq_ex2@IBVERBS_PRIVATE_34");

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    int (*const asks[])(struct ibv_context *, uint8_t, unsigned, int *) = {
        gid_type_25, gid_type_33, gid_type_34, gid_type_57, gid_type_59, gid_type_64, gid_type_65};
    for (unsigned at = 0; at < sizeof asks / sizeof *asks; at++) {
        int type = -1;
        CHECK(!asks[at](context, 1, 0, &type) && type > 0);
    }
    CHECK(create_cq_34() == EOPNOTSUPP);
    puts(ibv_get_device_name(list[0]));
    CHECK(!ibv_close_device(context));
    ibv_free_device_list(list);
}
