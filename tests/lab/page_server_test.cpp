// SPDX-License-Identifier: MIT
#include "lab/page/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string ask(int port, const std::string& line, const std::string& host = "localhost") {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request =
        line + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
    if (write(fd, request.data(), request.size()) > 0) {
      char part[4096];
      for (ssize_t n = 0; (n = read(fd, part, sizeof(part))) > 0;) {
        answer.append(part, static_cast<size_t>(n));
      }
    }
  }
  close(fd);
  return answer;
}

class PageServer : public testing::Test {
 protected:
  void SetUp() override {
    options_.html = [] { return "<p>page</p>"; };
    options_.json = []() -> std::string { throw Error(ErrorCode::io, "the store is gone"); };
    options_.ready = [&](int port) { port_.set_value(port); };
    options_.stop = [&] { return stop_.load(); };
    thread_ = std::thread([&] {
      try {
        serve(options_);
      } catch (...) {
        port_.set_exception(std::current_exception());
      }
    });
    try {
      at_ = port_.get_future().get();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::unsupported) throw;
      GTEST_SKIP() << "SKIPPED: this build has no libevent";
    }
  }
  void TearDown() override {
    stop_ = true;
    thread_.join();
  }

  ServerOptions options_;
  std::promise<int> port_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
  int at_ = 0;
};

TEST_F(PageServer, AnswersWithThePage) {
  const std::string answer = ask(at_, "GET /");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("<p>page</p>"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy"));
}

TEST_F(PageServer, OneRequestThatFailsIsNotTheEnd) {
  EXPECT_THAT(ask(at_, "GET /data.json"), HasSubstr("the store is gone"));
  EXPECT_THAT(ask(at_, "GET /"), StartsWith("HTTP/1.1 200"));
}

TEST_F(PageServer, GivesNothingElseAndTakesNothing) {
  EXPECT_THAT(ask(at_, "GET /../etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(at_, "POST /"), StartsWith("HTTP/1.1 501"));
  EXPECT_THAT(ask(at_, "DELETE /data.json"), StartsWith("HTTP/1.1 501"));
}

TEST_F(PageServer, ANameOfElsewhereThatLeadsHereReadsNothing) {
  EXPECT_THAT(ask(at_, "GET /", "evil.example"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask(at_, "GET /", "127.0.0.1:7420"), StartsWith("HTTP/1.1 200"));
}

TEST_F(PageServer, APortThatIsTakenIsNamed) {
  ServerOptions second;
  second.port = at_;
  try {
    serve(second);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("is not to be had"));
    EXPECT_THAT(e.what(), HasSubstr(std::to_string(at_)));
  }
}

TEST(PageAddress, OnlyThisMachineIsLoopback) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
}

}  // namespace
}  // namespace gallop::lab
