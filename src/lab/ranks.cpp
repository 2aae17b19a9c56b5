// SPDX-License-Identifier: MIT
#include "lab/ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "gallop/error.h"
#include "mpi/module.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "libgallop_mpi.so";

// As Open MPI, and MPICH and its kin, tell those they start.
int started_with() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* size = std::getenv(name)) return std::atoi(size);
  }
  return 1;
}

const GallopMpi& load_module() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::string why;
  for (const fs::path& folder : {here, here.parent_path() / GALLOP_MODULE_FOLDER}) {
    const fs::path path = folder / kModule;
    if (!fs::exists(path, ignored)) continue;
    // Open MPI's own plugins look for its symbols among those of all.
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* entry = module == nullptr ? nullptr : dlsym(module, "gallop_mpi");
    if (entry != nullptr) return *reinterpret_cast<const GallopMpi* (*)()>(entry)();
    if (const char* error = dlerror()) why = fmt::format(": {}", error);
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("started by mpirun, but {} cannot be loaded{}; expected it beside the "
                          "program, of a gallop that was built where MPI is",
                          kModule, why));
}

class MpiRanks : public Ranks {
 public:
  MpiRanks() : mpi_(load_module()) {
    if (const int error = mpi_.start(&rank_, &size_); error != 0) {
      throw Error(ErrorCode::unsupported, fmt::format("MPI does not start, error {}", error));
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool send(int to, const std::string& text) override {
    return mpi_.send(to, text.data(), static_cast<long>(text.size())) == 0;
  }
  std::optional<RankMessage> receive() override {
    RankMessage message;
    const long size = mpi_.waiting(&message.from);
    if (size < 0) return {};
    message.text.resize(static_cast<size_t>(size));
    if (mpi_.receive(message.from, message.text.data(), size) != 0) return {};
    return message;
  }
  void finish(bool all_are_there) override {
    mpi_.finish(all_are_there ? 1 : 0, all_are_there ? 5 : 0.5);  // what is for the lost stays
  }

 private:
  const GallopMpi& mpi_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<Ranks> join_ranks() {
  if (started_with() < 2) return {};
  return std::make_unique<MpiRanks>();
}

}  // namespace gallop::lab
