// SPDX-License-Identifier: MIT
// A page over HTTP: read-only, for browsers on this machine unless told otherwise.
#pragma once

#include <functional>
#include <string>

namespace gallop::lab {

struct ServerOptions {
  std::string address = "127.0.0.1";
  int port = 0;  // 0: any that is free
  // Of every request: the page, and what it asks for to be up to date. What they throw is the
  // answer to one request, not the end of the server.
  std::function<std::string()> html, json;
  std::function<void(int port)> ready = [](int) {};
  std::function<bool()> stop = [] { return false; };  // asked some times a second
};

// Until it is stopped. Throws where the address is not to be had.
void serve(const ServerOptions& options);

// Whether only this machine reaches it.
inline bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "[::1]";
}

}  // namespace gallop::lab
