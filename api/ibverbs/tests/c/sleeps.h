/* Waits until another thread sleeps in the kernel, for the programs of these folders. */
#ifndef SLEEPS_H
#define SLEEPS_H

#include "check.h"
#include <sched.h>
#include <stdatomic.h>

/* Does the thread with this number sleep, and can a signal end its sleep? */
static inline int sleeps(int thread) {
    char name[64], line[512], state;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(name, "r");
    CHECK(file && fgets(line, sizeof line, file) && !fclose(file));
    CHECK(sscanf(strrchr(line, ')') + 1, " %c", &state) == 1);
    return state == 'S';
}

/* `thread` is where the thread stores its number. */
static inline void until_it_sleeps(atomic_int *thread) {
    while (!atomic_load(thread) || !sleeps(atomic_load(thread))) sched_yield();
}

#endif
