/* All ranks of MPI sum vectors of one number to a mebibyte, and each has all sums. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 17 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, wrong = 0, somewhere = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double *mine = calloc(MOST, sizeof *mine), *sums = calloc(MOST, sizeof *sums);
    if (!mine || !sums) MPI_Abort(MPI_COMM_WORLD, 2);
    for (int at = 0; at < MOST; at++) mine[at] = rank + at;
    for (int count = 1; count <= MOST; count *= 8) {
        MPI_Allreduce(mine, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < count; at++) wrong |= sums[at] != ranks * (ranks - 1) / 2 + (double)ranks * at;
    }
    MPI_Allreduce(&wrong, &somewhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) puts(somewhere ? "wrong" : "reduced");
    free(mine);
    free(sums);
    MPI_Finalize();
    return somewhere;
}
