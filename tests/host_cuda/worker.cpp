// A process that is a CUDA device to the tests: buffers and launches over standard input and output.
//
// It is a process of its own because AddressSanitizer must own the memory it watches, and because a caught error ends it. Every request
// is a byte and little-endian numbers; only reads and 's' are answered, with a byte 1. Each buffer is one allocation of exactly its size, so
// one byte past its end is in a red zone.
#include "shim.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

namespace {

template <class T>
T get() {
    T v;
    if (std::fread(&v, sizeof v, 1, stdin) != 1) std::_Exit(0);  // the test is done
    return v;
}

void get_bytes(void* to, std::size_t n) {
    if (n > 0 && std::fread(to, 1, n, stdin) != n) std::_Exit(0);
}

void done() { std::fputc(1, stdout); }

struct Buffer {
    char* at;
    std::size_t bytes;
};

std::map<std::uint64_t, Buffer> buffers;

Buffer& find(std::uint64_t id) {
    const auto found = buffers.find(id);
    if (found == buffers.end()) shim::fail("a buffer that does not exist");
    return found->second;
}

void check(const Buffer& buffer, std::uint64_t bytes) {
    if (bytes > buffer.bytes) shim::fail("a copy is longer than its buffer");
}

void launch() {
    const auto name_length = get<std::uint32_t>();
    std::vector<char> name(name_length + 1, '\0');
    get_bytes(name.data(), name_length);
    const auto grid_x = get<std::uint32_t>(), grid_y = get<std::uint32_t>(), block = get<std::uint32_t>();
    const auto dynamic_bytes = get<std::uint32_t>();
    const auto seed = get<std::uint64_t>();
    const auto n = get<std::uint32_t>();
    std::vector<shim::Argument> arguments(n);
    for (auto& a : arguments) {
        a.kind = get<char>();
        a.bits = get<std::uint64_t>();
        if (a.kind == 'p' || a.kind == 'm') a.bits = reinterpret_cast<std::uint64_t>(find(a.bits).at);
    }
    for (unsigned i = 0; i < shim::n_entries; ++i) {
        if (std::strcmp(shim::entries[i].name, name.data()) == 0) {
            if (shim::entries[i].arguments != n) {
                std::fprintf(stderr, "host_cuda: %s takes %u arguments, %u were given\n", name.data(), shim::entries[i].arguments, n);
                std::_Exit(86);
            }
            shim::launch(shim::entries[i], {grid_x, grid_y, 1}, block, dynamic_bytes, seed, arguments.data());
            return;
        }
    }
    std::fprintf(stderr, "host_cuda: there is no kernel %s\n", name.data());
    std::_Exit(86);
}

}  // namespace

int main() {
    for (;;) {
        switch (get<char>()) {
            case 'a': {
                const auto id = get<std::uint64_t>();
                const auto bytes = get<std::uint64_t>();
                buffers[id] = {static_cast<char*>(std::malloc(bytes)), bytes};
                // Fresh memory is undefined on a device.
                std::memset(buffers[id].at, 0xd7, bytes);
                break;
            }
            case 'f': {
                const auto id = get<std::uint64_t>();
                std::free(find(id).at);
                buffers.erase(id);
                break;
            }
            case 'w': {
                Buffer& buffer = find(get<std::uint64_t>());
                const auto offset = get<std::uint64_t>(), bytes = get<std::uint64_t>();
                check(buffer, offset + bytes);
                get_bytes(buffer.at + offset, bytes);
                break;
            }
            case 'c': {
                Buffer& from = find(get<std::uint64_t>());
                Buffer& to = find(get<std::uint64_t>());
                const auto bytes = get<std::uint64_t>();
                check(from, bytes);
                check(to, bytes);
                std::memcpy(to.at, from.at, bytes);
                break;
            }
            case 'r': {
                Buffer& buffer = find(get<std::uint64_t>());
                const auto bytes = get<std::uint64_t>();
                check(buffer, bytes);
                done();
                std::fwrite(buffer.at, 1, bytes, stdout);
                std::fflush(stdout);
                break;
            }
            case 'z': {
                Buffer& buffer = find(get<std::uint64_t>());
                const auto bytes = get<std::uint64_t>();
                check(buffer, bytes);
                std::memset(buffer.at, 0, bytes);
                break;
            }
            case 'l':
                launch();
                break;
            case 's':
                done();
                std::fflush(stdout);
                break;
            default:
                shim::fail("a request that is not known");
        }
    }
}
