#pragma once
// Networks by their names in a workload file: [model] kind = mlp | lenet | autoencoder | resnet-cifar | resnet |
// cosmoflow | map-cnn | transformer.

#include <cairn/models/autoencoder.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/lenet.hpp>
#include <cairn/models/map_cnn.hpp>
#include <cairn/models/mlp.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/train/configuration.hpp>

namespace cairn {

/// The network that the settings name, on device D, computing in T, for samples of shape `sample` and `outputs` numbers
/// a sample.
template <Device D = cpu, class T = float>
sequential<T, D> make_model(configuration& settings, const shape& sample, index_t outputs) {
    const std::string kind = settings.choice(
        "model.kind", {"mlp", "lenet", "autoencoder", "resnet-cifar", "resnet", "cosmoflow", "map-cnn", "transformer"});
    const auto need_axes = [&](int axes, const char* names) {
        require(sample.rank() == axes, "model ", kind, " takes samples ", names, ", the data have ", sample);
    };
    if (kind == "mlp") {
        std::vector<index_t> sizes{sample.size()};
        for (std::int64_t hidden : settings.get("model.hidden", std::vector<std::int64_t>{256, 256}))
            sizes.push_back(hidden);
        sizes.push_back(outputs);
        return mlp<T, D>(sizes);
    }
    if (kind == "autoencoder") {
        std::vector<index_t> widths{sample.size()};
        for (std::int64_t width : settings.get("model.hidden", std::vector<std::int64_t>{1000, 500, 250, 30}))
            widths.push_back(width);
        return autoencoder<T, D>(widths);
    }
    if (kind == "transformer") {
        need_axes(1, "(length)");
        transformer_config c{.vocab_size = outputs, .max_length = sample[0]};
        c.embedding_dim = settings.get("model.embedding_dim", c.embedding_dim);
        c.heads = settings.get("model.heads", c.heads);
        c.blocks = settings.get("model.blocks", c.blocks);
        c.ffn_dim = settings.get("model.ffn_dim", c.ffn_dim);
        c.dropout = settings.get("model.dropout", c.dropout);
        c.attention_dropout = settings.get("model.attention_dropout", c.attention_dropout);
        return transformer<T, D>(c);
    }
    if (kind == "cosmoflow") {
        need_axes(4, "(D, H, W, C)");
        cosmoflow_config c{.size = sample[0], .channels = sample.back()};
        c.filters = settings.get("model.filters", c.filters);
        c.blocks = settings.get("model.blocks", c.blocks);
        c.outputs = outputs;
        c.dropout = settings.get("model.dropout", c.dropout);
        c.normalise = settings.get("model.normalise", c.normalise);
        return cosmoflow<T, D>(c);
    }
    need_axes(3, "(H, W, C)");
    if (kind == "lenet") return lenet<T, D>(outputs);
    if (kind == "map-cnn") {
        map_cnn_config c{.in_channels = sample.back(), .outputs = outputs};
        if (const auto filters = settings.get("model.filters", std::vector<std::int64_t>{16, 32, 64, 64});
            !filters.empty())
            c.filters.assign(filters.begin(), filters.end());
        return map_cnn<T, D>(c);
    }
    if (kind == "resnet-cifar") return resnet_cifar<T, D>(settings.get("model.depth", 20), outputs);
    const std::string form = settings.choice("model.form", {"cifar", "imagenet"}, "imagenet");
    return resnet<T, D>(settings.get("model.depth", 18),
                        form == "cifar" ? resnet_config::stem::cifar : resnet_config::stem::imagenet, outputs);
}

}  // namespace cairn
