#include "tf/c_api.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* In which of its libraries TensorFlow has a function differs from version to version. */
enum { MAX_LIBRARIES = 16 };

struct libraries {
    char *names[MAX_LIBRARIES]; /* owned */
    int count;
};

static bool is_tensorflows(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return strncmp(name, "libtensorflow", strlen("libtensorflow")) == 0 ||
           strncmp(name, "_pywrap_tensorflow", strlen("_pywrap_tensorflow")) == 0;
}

/* Only names: opening anything in here would wait for the loader, which waits for us. */
static int note_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct libraries *found = argument;
    if (found->count < MAX_LIBRARIES && info->dlpi_name && is_tensorflows(info->dlpi_name)) {
        char *name = strdup(info->dlpi_name);
        if (name)
            found->names[found->count++] = name;
    }
    return 0;
}

static void *look_up(void *const *handles, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        void *address = dlsym(handles[i], name);
        if (address)
            return address;
    }
    return NULL;
}

const char *ydl_tf_find(struct tf_api *out)
{
    struct libraries found = {.count = 0};
    void *handles[MAX_LIBRARIES];
    int count = 0;
    dl_iterate_phdr(note_library, &found);
    for (int i = 0; i < found.count; i++) {
        void *handle = dlopen(found.names[i], RTLD_LAZY | RTLD_NOLOAD);
        if (handle)
            handles[count++] = handle; /* never closed: TensorFlow stays loaded too */
        free(found.names[i]);
    }

    const char *missing = NULL;
    /* memcpy, since C has no cast from an object's pointer to a function's. */
#define TF_LOOK_UP(result, name, arguments)                                                        \
    {                                                                                              \
        void *address = look_up(handles, count, #name);                                            \
        memcpy(&out->name, &address, sizeof address);                                              \
        if (!address)                                                                              \
            missing = #name;                                                                       \
    }
    TF_FUNCTIONS(TF_LOOK_UP)
#undef TF_LOOK_UP
    return missing;
}
