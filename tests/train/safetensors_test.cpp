#include "catch.hpp"
#include "data/fuzz_json_formats.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

std::string refusal_of(const std::string& json, std::size_t data) {
    return message_of([&] { parse_safetensors(json, data, "x.safetensors"); });
}

void put_bytes(const std::filesystem::path& path, const std::vector<std::uint8_t>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

TEST_CASE("safetensors: a file made by hand is read", "[safetensors]") {
    const ::temporary_folder folder;
    put_bytes(folder / "x", small_safetensors());
    const safetensors_file file(folder / "x");
    const auto& h = file.header();
    REQUIRE(h.tensors.size() == 4);
    CHECK(h.metadata.at("made by") == "hand");
    CHECK((h.tensors[0].name == "a/x" && h.tensors[0].type == "I64" && h.tensors[0].extents == shape{}));
    CHECK((h.tensors[1].name == "b" && h.tensors[1].extents == shape{2, 3} && h.tensors[2].extents == shape{0, 7}));
    const std::vector<std::byte> c = file.read(h.tensors[3]);
    CHECK((c.size() == 3 && c[0] == std::byte{32} && c[2] == std::byte{34}));
}

TEST_CASE("safetensors: what is written is the format, and is read back", "[safetensors]") {
    const ::temporary_folder folder;
    const auto bytes_of = [](const safetensors_entry& e) {
        return std::vector<std::byte>(e.end - e.begin, static_cast<std::byte>(e.name[0]));
    };
    write_safetensors(folder / "x",
                      {{"byte", "U8", {3}, 0, 0}, {"float", "F32", {2, 1}, 0, 0}, {"long", "I64", {}, 0, 0}},
                      {{"k", "v\"w"}}, bytes_of);
    const std::string expected =
        R"({"__metadata__":{"k":"v\"w"},"byte":{"data_offsets":[16,19],"dtype":"U8","shape":[3]},)"
        R"("float":{"data_offsets":[8,16],"dtype":"F32","shape":[2,1]},"long":{"data_offsets":[0,8],"dtype":"I64","shape":[]}})";
    const std::string text = text_of(folder / "x");
    CHECK(text.substr(8, expected.size()) == expected);
    CHECK(static_cast<std::size_t>(static_cast<unsigned char>(text[0])) == (expected.size() + 7) / 8 * 8);
    CHECK(text.ends_with("llllllllffffffffbbb"));
    const safetensors_file file(folder / "x");
    CHECK(file.header().metadata.at("k") == "v\"w");
    CHECK(file.header().data_begin % 8 == 0);
    CHECK_THAT(message_of([&] {
                   write_safetensors(folder / "y", {{"a", "U8", {}, 0, 0}, {"a", "U8", {}, 0, 0}}, {}, bytes_of);
               }),
               Contains("two tensors are called a"));
    CHECK(!std::filesystem::exists(folder / "y"));
}

TEST_CASE("safetensors: hostile headers are refused, naming file and tensor", "[safetensors]") {
    const auto one = [](const std::string& inside) { return "{\"w\":{" + inside + "}}"; };
    CHECK(refusal_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8).empty());
    for (
        const auto& [json, data, part] : std::vector<std::tuple<std::string, std::size_t, std::string>>{
            {one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8, "w: unknown dtype F33"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 9, "9 bytes of data"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 7, "7 bytes of data"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,12])"), 12, "bytes 0 to 12"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8, "bytes 8 to 0"},
            {one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8, "an extent"},
            {one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8, "an extent"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,-8])"), 8, "an offset"},
            {one(R"("dtype":"F32","shape":[281474976710655,281474976710655],"data_offsets":[0,8])"), 8,
             "than can be counted"},
            {one(R"("dtype":"F64","shape":[140737488355328,32768],"data_offsets":[0,0])"), 0, "than can be counted"},
            {one(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0, "an extent"},
            {one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), 4, "w: shape: more than 6 axes"},
            {one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), 8, "not {dtype"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), 8, "not {dtype"},
            {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)"), 8, "not {dtype"},
            {one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8, "dtype is there twice"},
            {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
             2, "w is there twice"},
            {R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
             3, "w begins at byte 1 of the data, the one before ends at 2: they overlap"},
            {R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
             5, "w begins at byte 3 of the data, the one before ends at 2: a hole"},
            {one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2, "a hole"},
            {R"({"__metadata__":{"k":1}})", 0, "__metadata__: k is no text"},
            {R"({"__metadata__":[]})", 0, "__metadata__ is no object"},
            {"[]", 0, "no JSON object"},
            {" {}", 0, "no JSON object"},
            {"", 0, "no JSON"},
            {"{", 0, "no JSON"},
            {std::string(100'000, '['), 0, "nested or longer"},
            {"{\"a\":" + std::string(100'000, '{'), 0, "no JSON"},
            {one("\"shape\":[1" + std::string(2'000'000, ' ') + ",1,1,1" +
                 [] {
                     std::string ones;
                     for (int i = 0; i < 100; ++i) ones += ",1";
                     return ones;
                 }() +
                 "]"),
             0, "nested or longer"}})
        CHECK_THAT(refusal_of(json, data), Contains(part) && Catch::Matchers::StartsWith("x.safetensors"));
}

TEST_CASE("safetensors: lengths beyond the file or the limit are refused before they are believed", "[safetensors]") {
    const ::temporary_folder folder;
    const auto refusal = [&](std::uint64_t length, std::size_t bytes) {
        std::vector<std::uint8_t> file(bytes, ' ');
        if (bytes >= sizeof length) std::memcpy(file.data(), &length, sizeof length);
        put_bytes(folder / "x", file);
        return message_of([&] { const safetensors_file read(folder / "x"); });
    };
    CHECK_THAT(refusal(0, 3), Contains("truncated"));
    CHECK_THAT(refusal(0, 8), Contains("truncated"));
    CHECK_THAT(refusal(100, 50), Contains("a header of 100 bytes, the file has 50"));
    CHECK_THAT(refusal(100'000'001, 50), Contains("at most 100000000"));
    CHECK_THAT(refusal(~std::uint64_t{0}, 50), Contains("at most 100000000"));
    CHECK_THAT(message_of([&] { const safetensors_file read(folder / "none"); }), Contains("cannot be opened"));
}

}  // namespace cairn::test
