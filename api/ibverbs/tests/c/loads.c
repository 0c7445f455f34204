/* Finds everything by dlopen and dlvsym, as NCCL does, beside Debian's providers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static struct ibv_device **(*list_devices)(int *);

int main(void) {
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!library || !dlopen("libmlx5.so.1", RTLD_NOW) || !dlopen("libefa.so.1", RTLD_NOW)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    static const char *const names[][2] = {
        {"ibv_get_device_list", "IBVERBS_1.1"}, {"ibv_open_device", "IBVERBS_1.1"},
        {"ibv_reg_mr_iova2", "IBVERBS_1.8"},    {"ibv_query_ece", "IBVERBS_1.10"},
        {"ibv_set_ece", "IBVERBS_1.10"},        {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
        {"ibv_query_port_speed", "IBVERBS_1.16"},
    };
    for (size_t at = 0; at < sizeof names / sizeof names[0]; at++) {
        if (!dlvsym(library, names[at][0], names[at][1])) {
            fprintf(stderr, "%s@%s: %s\n", names[at][0], names[at][1], dlerror());
            return 1;
        }
    }
    list_devices = (struct ibv_device ** (*)(int *)) dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
    int count = 0;
    struct ibv_device **list = list_devices(&count);
    if (count != 1 || !list[0] || list[1]) return 1;
    /* A provider asks whether the device is its own. */
    int (*is_supported)(struct ibv_device *) = (int (*)(struct ibv_device *)) dlsym(RTLD_DEFAULT, "mlx5dv_is_supported");
    void *mlx5 = dlopen("libmlx5.so.1", RTLD_NOW);
    if (!is_supported) is_supported = (int (*)(struct ibv_device *)) dlsym(mlx5, "mlx5dv_is_supported");
    if (!is_supported || (is_supported(list[0]) & 1)) return 1;
    /* The library stays although it is closed. */
    dlclose(library);
    puts(list[0]->name);
}
