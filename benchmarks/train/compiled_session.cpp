#define CAIRN_COMPILED_SESSION
#include "compiled_session.hpp"
