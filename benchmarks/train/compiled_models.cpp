#define CAIRN_COMPILED_networks_float
#include <cairn/train/models.hpp>
