// SPDX-License-Identifier: MIT
#include "lab/page/server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

constexpr timeval kLook = {0, 200'000};  // how often it is asked whether to stop

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Base = std::unique_ptr<event_base, Freed<event_base_free>>;
using Http = std::unique_ptr<evhttp, Freed<evhttp_free>>;
using Timer = std::unique_ptr<event, Freed<event_free>>;

void answer(evhttp_request* request, int code, const char* type, std::string_view text) {
  evkeyvalq* headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Content-Type", type);
  evhttp_add_header(headers, "Cache-Control", "no-store");
  evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
  evhttp_add_header(headers, "Content-Security-Policy",
                    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                    "img-src data:; connect-src 'self'");
  evbuffer_add(evhttp_request_get_output_buffer(request), text.data(), text.size());
  evhttp_send_reply(request, code, nullptr, nullptr);
}

// A page of elsewhere whose name leads here must not read what is served to this machine alone.
bool is_for_here(evhttp_request* request, const ServerOptions& o) {
  if (!is_loopback(o.address)) return true;
  const char* host = evhttp_request_get_host(request);
  return host != nullptr && (is_loopback(host) || std::string_view(host) == "localhost");
}

void on_request(evhttp_request* request, void* given) {
  const auto& o = *static_cast<const ServerOptions*>(given);
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  const char* path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
  const std::string_view asked = path == nullptr ? "" : path;
  if (!is_for_here(request, o)) return answer(request, 403, kPlain, "not for other hosts\n");
  try {
    if (asked == "/") return answer(request, 200, "text/html; charset=utf-8", o.html());
    if (asked == "/data.json") return answer(request, 200, "application/json", o.json());
  } catch (const std::exception& e) {
    return answer(request, 500, kPlain, e.what());
  }
  answer(request, 404, kPlain, "there is / and /data.json\n");
}

int port_of(evhttp_bound_socket* bound) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

void serve(const ServerOptions& options) {
  const Base base(event_base_new());
  const Http http(base ? evhttp_new(base.get()) : nullptr);
  if (!http) throw Error(ErrorCode::out_of_memory, "there is no memory to serve with");
  evhttp_set_allowed_methods(http.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
  evhttp_set_gencb(http.get(), on_request, const_cast<ServerOptions*>(&options));
  evhttp_bound_socket* bound = evhttp_bind_socket_with_handle(http.get(), options.address.c_str(),
                                                              static_cast<uint16_t>(options.port));
  if (bound == nullptr) {
    throw Error(ErrorCode::io, fmt::format("port {} of {} is not to be had ({}), expected another "
                                           "--port or --address",
                                           options.port, options.address, std::strerror(errno)));
  }
  struct Watch {
    const ServerOptions& options;
    event_base* base;
  } watch{options, base.get()};
  const auto look = [](evutil_socket_t, short, void* given) {
    const auto& w = *static_cast<Watch*>(given);
    if (w.options.stop()) event_base_loopbreak(w.base);
  };
  const Timer timer(event_new(base.get(), -1, EV_PERSIST, look, &watch));
  event_add(timer.get(), &kLook);
  options.ready(port_of(bound));
  event_base_dispatch(base.get());
}

}  // namespace gallop::lab
