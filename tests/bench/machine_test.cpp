// SPDX-License-Identifier: MIT
#include "bench/machine.h"

#include "bench/nvml.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "bench/clocks.h"
#include "bench/machine_files.h"
#include "folder.h"

namespace gallop::bench {
namespace {

// A folder that stands in for / and is removed at the end.
class FakeRoot : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_.path() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void write_cache(int index, const std::string& level, const std::string& type,
                   const std::string& size) const {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    write(folder + "level", level + "\n");
    write(folder + "type", type + "\n");
    write(folder + "size", size + "\n");
  }

  Machine describe() const { return describe_machine(root_.path()); }
  double quota() const { return MachineFiles(root_.path()).cgroup_cpus(); }

 private:
  test::Folder root_;
};

using DescribeMachine = FakeRoot;

TEST_F(DescribeMachine, ReadsTheModelNameOfAnX86Cpu) {
  write("/proc/cpuinfo",
        "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)  8480C\n\n"
        "processor\t: 1\nmodel name\t: other\n");
  EXPECT_EQ(describe().cpu, "Intel(R) Xeon(R)  8480C");
}

TEST_F(DescribeMachine, NamesAnArmCpuByItsNumbers) {
  write("/proc/cpuinfo",
        "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        "CPU variant\t: 0x0\nCPU part\t: 0xd4f\n");
  EXPECT_EQ(describe().cpu, "Arm Neoverse-V2");
}

TEST_F(DescribeMachine, ShowsTheNumbersOfAnUnknownArmCpu) {
  write("/proc/cpuinfo", "CPU implementer\t: 0x99\nCPU part\t: 0x123\n");
  EXPECT_EQ(describe().cpu, "Arm CPU (implementer 0x99, part 0x123)");
}

TEST_F(DescribeMachine, FallsBackToTheArchitectureWithoutCpuinfo) {
#if defined(__x86_64__)
  EXPECT_EQ(describe().cpu, "unnamed x86_64 CPU");
#else
  EXPECT_TRUE(describe().cpu.starts_with("unnamed "));
#endif
}

TEST_F(DescribeMachine, ReadsDataAndUnifiedCachesButNoInstructionCache) {
  write_cache(0, "1", "Instruction", "64K");
  write_cache(1, "1", "Data", "48K");
  write_cache(2, "2", "Unified", "2048K");
  write_cache(3, "3", "Unified", "260M");
  const Machine machine = describe();
  EXPECT_EQ(machine.l1d_bytes, 49152);
  EXPECT_EQ(machine.l2_bytes, 2097152);
  EXPECT_EQ(machine.l3_bytes, 272629760);
}

TEST_F(DescribeMachine, ReadsMemoryOperatingSystemAndGovernor) {
  write("/proc/meminfo", "MemTotal:       24682416 kB\nMemFree:        1 kB\n");
  write("/etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  const Machine machine = describe();
  EXPECT_EQ(machine.memory_bytes, 25274793984);
  EXPECT_EQ(machine.os, "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(machine.governor, "performance");
}

TEST_F(DescribeMachine, LeavesUnknownThingsEmpty) {
  const Machine machine = describe();
  EXPECT_EQ(machine.l1d_bytes, 0);
  EXPECT_EQ(machine.l3_bytes, 0);
  EXPECT_EQ(machine.memory_bytes, 0);
  EXPECT_EQ(machine.os, "");
  EXPECT_EQ(machine.governor, "");
}

TEST_F(DescribeMachine, ObeysTheCpuQuotaOfCgroupV2RoundedDown) {
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/cpu.max", "190000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.9);
  EXPECT_EQ(describe().available_cpus, 1);
}

TEST_F(DescribeMachine, ObeysTheTightestQuotaOfAllParentGroups) {
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/job/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 3);
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.5);
  EXPECT_EQ(describe().available_cpus, 1);
}

TEST_F(DescribeMachine, ObeysTheCpuQuotaOfCgroupV1) {
  write("/proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/job\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "125000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.25);
  EXPECT_EQ(describe().available_cpus, 1);
}

TEST_F(DescribeMachine, IsUnlimitedByQuotasThatSayNothing) {
  const int all = describe().available_cpus;  // the affinity alone
  write("/proc/self/cgroup", "4:cpuset:/\n3:cpu:/\n0::/\nnonsense\n");
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1\n");
  write("/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(quota()));
  EXPECT_EQ(describe().available_cpus, all);
}

TEST_F(DescribeMachine, ReadsTheClockOfTheFastestCpu) {
  EXPECT_EQ(describe().cpu_mhz, 0);
  write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2800500\n");
  EXPECT_EQ(describe().cpu_mhz, 2800);
  write("/proc/cpuinfo",
        "processor\t: 0\ncpu MHz\t\t: 1200.000\n\nprocessor\t: 1\ncpu MHz\t\t: 3391.498\n");
  EXPECT_EQ(describe().cpu_mhz, 3391);
  write("/proc/cpuinfo", "cpu MHz\t\t: fast\n");
  EXPECT_EQ(describe().cpu_mhz, 2800);
}

TEST(ClocksText, SaysWhatIsKnownOfCpusAndGpus) {
  Machine machine;
  EXPECT_EQ(clocks_text(machine, {}), "");
  machine.cpu_mhz = 3391;
  EXPECT_EQ(clocks_text(machine, {}), "CPU 3391 MHz");
  machine.governor = "performance";
  Gpu gpu;
  EXPECT_EQ(clocks_text(machine, {gpu}), "CPU 3391 MHz (performance)");
  gpu.sm_mhz = 1755, gpu.most_sm_mhz = 1980, gpu.memory_mhz = 3201;
  EXPECT_EQ(clocks_text({}, {gpu}), "GPU 1755 of 1980 MHz, memory 3201 MHz");
  gpu.slowdown = "power cap";
  EXPECT_EQ(
      clocks_text(machine, {gpu, gpu}),
      "CPU 3391 MHz (performance); GPU 1755 of 1980 MHz, memory 3201 MHz, power cap; GPU 1755 "
      "of 1980 MHz, memory 3201 MHz, power cap");
}

TEST(DescribeThisMachine, FindsACpuMemoryAndACompiler) {
  const Machine machine = describe_machine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.available_cpus, 1);
  EXPECT_GE(machine.logical_cpus, machine.available_cpus);
  EXPECT_GT(machine.memory_bytes, 0);
  EXPECT_TRUE(machine.kernel.starts_with("Linux "));
#if defined(__clang__)
  EXPECT_TRUE(machine.compiler.starts_with("clang "));
#else
  EXPECT_TRUE(machine.compiler.starts_with("gcc "));
#endif
  EXPECT_FALSE(machine.flags_note.empty());
}

TEST(FindGpus, GivesEveryGpuANameAndNeverThrows) {
  for (const Gpu& gpu : find_gpus()) EXPECT_FALSE(gpu.name.empty());
}

}  // namespace
}  // namespace gallop::bench
