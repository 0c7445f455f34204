/* A token goes around all ranks of MPI, and grows by one at each. Messages are short, and then long. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAPS = 20, LONG = 1 << 18 };

/* Passes `count` numbers around once. Each rank adds one to each of them. */
static void lap(int rank, int ranks, int *numbers, int count) {
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    if (rank == 0) MPI_Send(numbers, count, MPI_INT, next, count, MPI_COMM_WORLD);
    MPI_Recv(numbers, count, MPI_INT, previous, count, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int at = 0; at < count; at++) numbers[at]++;
    if (rank != 0) MPI_Send(numbers, count, MPI_INT, next, count, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *numbers = calloc(LONG, sizeof *numbers);
    int wrong = numbers == NULL;
    for (int at = 0; !wrong && at < LAPS; at++) lap(rank, ranks, numbers, 1);
    if (!wrong) lap(rank, ranks, numbers, LONG);
    if (rank == 0 && !wrong) {
        wrong = numbers[0] != (LAPS + 1) * ranks;
        for (int at = 1; at < LONG; at++) wrong |= numbers[at] != ranks;
        puts(wrong ? "wrong" : "around");
    }
    free(numbers);
    MPI_Finalize();
    return wrong;
}
