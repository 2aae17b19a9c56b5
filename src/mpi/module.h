/* SPDX-License-Identifier: MIT
 * What libgallop_mpi.so gives the program, which loads it when mpirun started it: the program
 * itself needs no MPI. */
#pragma once

extern "C" {

struct GallopMpi {
  int (*start)(int* rank, int* size);                   /* 0: all is well, here and below */
  int (*send)(int to, const char* bytes, long size);    /* does not wait; another code: it failed */
  long (*waiting)(int* from);                           /* bytes of a message; -1: there is none */
  int (*receive)(int from, char* bytes, long size);     /* the one that was waiting */
  void (*finish)(int all_are_there, double patience_s); /* after what was sent has gone out */
};

const GallopMpi* gallop_mpi();
}
