// Runs whose photographs a device decodes (data.decode = gpu): saved, resumed, recorded, and refused where that cannot
// be.

#include "data/writers.hpp"
#include "train/device_runs.hpp"

#include <cairn/device/cuda/encoded_images.hpp>

namespace cairn {

using namespace device_runs;

namespace {

struct late_libjpeg {
    void decode(std::vector<jpeg_job>& jobs, emulated_gpu::copy_stream& queue) {
        for (jpeg_job& j : jobs) {
            auto out = std::make_shared<image>();
            jpeg_decoder(j.file, "job").decode(*out);
            decoded.push_back(out);
            queue.copy(j.pixels, out->pixels.data(), static_cast<index_t>(out->pixels.size()));
        }
    }
    std::vector<std::shared_ptr<image>> decoded;
};

const std::string encoded_image_run =
    "[data]\nformat = 'folder'\nsize = 14\njitter = 0.2\ntest_fraction = 0.25\n"
    "[model]\nkind = 'mlp'\nhidden = [5]\n[optimizer]\nlr = 1e-2\n";

}  // namespace

TEST_CASE("session: photographs that the device decodes give the host's run, saved, resumed and recorded", "[train]") {
    const test::temporary_folder images;
    for (unsigned i = 0; i < 16; ++i)
        images.write(concat(i % 2 ? "a/" : "b/", i, i == 5 ? ".png" : ".jpg"),
                     i == 5 ? test::png_file(test::picture(20, 21, i)) : test::jpeg_file(test::picture(20, 24, i)));
    const std::string path = "data.path=" + images.path().string();
    const folder dir;
    const auto go = [&]<class D>(D, const char* name, const char* decode, const char* graph, bool resume, int steps) {
        const session_options options = in_run(dir.path / name, resume, steps);
        encoded_image_decoders<D> decoders = nullptr;
        if constexpr (std::same_as<D, emulated_gpu>)
            decoders = [] { return std::make_unique<encoded_images_on<emulated_gpu, late_libjpeg>>(); };
        session<D> s(settings_of(encoded_image_run, {path.c_str(), decode, graph, "train.micro_batches=1",
                                                     "train.test_every=1", "train.epochs=3"}),
                     options, self_communicator{}, {}, decoders);
        s.train();
        return run_figures{losses_of(options), weights_of(s)};
    };
    const run_figures host = go(cpu{}, "host", "data.decode=cpu", "train.cuda_graph=off", false, 5);
    const run_figures device = go(emulated_gpu{}, "device", "data.decode=gpu", "train.cuda_graph=off", false, 5);
    CHECK(device.losses.size() == 5);
    CHECK(distance(device, host) < 1e-3);
    go(emulated_gpu{}, "parts", "data.decode=gpu", "train.cuda_graph=off", false, 3);
    CHECK(distance(go(emulated_gpu{}, "parts", "data.decode=gpu", "train.cuda_graph=off", true, 5), device) == 0);
    CHECK(distance(go(emulated_gpu{}, "recorded", "data.decode=gpu", "train.cuda_graph=on", false, 5), device) == 0);

    const auto refused = [&]<class D>(D, const std::string& workload, std::vector<const char*> more) -> std::string {
        more.push_back("data.decode=gpu");
        try {
            session<D>(settings_of(workload, more), in_run(dir.path / "refused", false, 1));
        } catch (const error& e) {
            return e.what();
        }
        return "nothing";
    };
    using Catch::Matchers::Contains;
    CHECK_THAT(refused(cpu{}, encoded_image_run, {path.c_str()}), Contains("needs the network on a GPU"));
    CHECK_THAT(refused(emulated_gpu{}, encoded_image_run, {path.c_str()}), Contains("built without nvJPEG"));
    CHECK_THAT(refused(cpu{}, encoded_image_run, {path.c_str(), "data.cache_mib=5"}), Contains("data.cache_mib = 5"));
}

}  // namespace cairn
