// SPDX-License-Identifier: MIT
#include "mpi/module.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <string>

namespace {

constexpr int kTag = 1;

// Sent, and not known to have gone out: a rank that is gone must not be waited for.
struct Outgoing {
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};
std::list<Outgoing> outgoing;

void forget_what_has_gone() {
  outgoing.remove_if([](Outgoing& o) {
    int done = 0;
    return MPI_Test(&o.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

int start(int* rank, int* size) {
  int error = MPI_Init(nullptr, nullptr);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(MPI_COMM_WORLD, size);
  return error;
}

int send(int to, const char* bytes, long size) {
  forget_what_has_gone();
  Outgoing& o = outgoing.emplace_back();
  o.bytes.assign(bytes, static_cast<size_t>(size));
  const int error = MPI_Isend(o.bytes.data(), static_cast<int>(size), MPI_BYTE, to, kTag,
                              MPI_COMM_WORLD, &o.request);
  if (error != MPI_SUCCESS) outgoing.pop_back();
  return error;
}

long waiting(int* from) {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS ||
      there == 0) {
    return -1;
  }
  int size = 0;
  *from = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, &size) == MPI_SUCCESS ? size : -1;
}

int receive(int from, char* bytes, long size) {
  return MPI_Recv(bytes, static_cast<int>(size), MPI_BYTE, from, kTag, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
}

void finish(int all_are_there, double patience_s) {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> patience(patience_s);
  for (;;) {
    forget_what_has_gone();
    if (outgoing.empty() || std::chrono::steady_clock::now() - begin > patience) break;
    usleep(1000);
  }
  // It waits for all ranks, so with one that is gone for ever.
  if (all_are_there != 0 && outgoing.empty()) MPI_Finalize();
}

constexpr GallopMpi kFunctions = {start, send, waiting, receive, finish};

}  // namespace

extern "C" __attribute__((visibility("default"))) const GallopMpi* gallop_mpi() {
  return &kFunctions;
}
