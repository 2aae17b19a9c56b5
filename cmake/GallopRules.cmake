# Turns rule headers into kernels. Installed with the library: gallop_add_rule() is for users too.
#
#   gallop_add_rule(my_program my_rule.h)
#
# compiles the rule for every instruction set and registers it when my_program starts. The header
# holds one struct; its file name is the rule's name. my_program links gallop::gallop.

# Where core/, cpu/, optimizer/ and rules/ are found: in the source tree, or installed.
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/../src/core/rule.h)
  get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
  set(GALLOP_RULE_INCLUDES ${root}/src ${root} CACHE INTERNAL "")
  set(GALLOP_RULE_WARNINGS "" CACHE INTERNAL "")
else()
  set(GALLOP_RULE_INCLUDES ${GALLOP_INSTALLED_INCLUDES}/gallop CACHE INTERNAL "")
  # A user's -Werror is not for gallop's headers.
  set(GALLOP_RULE_WARNINGS -Wno-error CACHE INTERNAL "")
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT GALLOP_EMULATED_CUDA)
  set(GALLOP_ISAS baseline avx2 avx512 CACHE INTERNAL "")
  # The same sources another time would find nothing new.
  if(GALLOP_SANITIZE MATCHES thread)
    set(GALLOP_ISAS baseline CACHE INTERNAL "")
  elseif(GALLOP_SANITIZE)
    set(GALLOP_ISAS baseline avx2 CACHE INTERNAL "")
  endif()
else()
  # AArch64's baseline has NEON and fma; beside an emulated GPU, others are of no interest.
  set(GALLOP_ISAS baseline CACHE INTERNAL "")
endif()
set(GALLOP_FLAGS_baseline "" CACHE INTERNAL "")
set(GALLOP_FLAGS_avx2 -mavx2 -mfma -mf16c CACHE INTERNAL "")
set(GALLOP_FLAGS_avx512 -march=skylake-avx512 -mprefer-vector-width=512 CACHE INTERNAL "")
# Never -ffast-math; no contraction, so that every mode rounds alike; without -fno-math-errno a
# square root does not vectorise.
set(GALLOP_KERNEL_FLAGS -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-exceptions
    -fno-rtti CACHE INTERNAL "")

function(gallop_private_source target source flags)
  # TARGET_DIRECTORY: the target may have been made in another folder than the caller's.
  set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "${flags};${GALLOP_RULE_WARNINGS}"
    INCLUDE_DIRECTORIES "${GALLOP_RULE_INCLUDES}")
  target_sources(${target} PRIVATE ${source})
endfunction()

function(gallop_cuda_source target source)
  if(GALLOP_EMULATED_CUDA)
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE CXX)
    gallop_private_source(${target} ${source}
      "-x;c++;-include;cuda_emulator/device.h;-ffp-contract=off;-Wno-unknown-pragmas;-Wno-maybe-uninitialized")
    return()
  endif()
  # No contraction: rules write fma where they mean it.
  set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "-std=c++20;-fmad=false;--expt-relaxed-constexpr"
    INCLUDE_DIRECTORIES "${GALLOP_RULE_INCLUDES}")
  target_sources(${target} PRIVATE ${source})
endfunction()

# Adds the kernels and the description of one rule to a target. REGISTER: announce it at start-up.
function(gallop_rule_sources target header register)
  get_filename_component(path ${header} ABSOLUTE)
  get_filename_component(id ${header} NAME_WE)
  file(STRINGS ${path} line REGEX "^struct [A-Za-z0-9_]+" LIMIT_COUNT 1)
  if(NOT line)
    message(FATAL_ERROR "${header}: no line begins with 'struct', expected the rule's struct")
  endif()
  string(REGEX REPLACE "^struct ([A-Za-z0-9_]+).*" "\\1" struct "${line}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})

  set(dir ${CMAKE_CURRENT_BINARY_DIR}/rules.gen)
  set(declare "")
  set(pointers "")
  foreach(isa IN LISTS GALLOP_ISAS)
    file(CONFIGURE OUTPUT ${dir}/${id}.${isa}.cpp CONTENT
"#include \"${path}\"
#define GALLOP_RULE ${struct}
#define GALLOP_RULE_ID ${id}
#define GALLOP_ISA ${isa}
#include \"cpu/rule_kernels.h\"
")
    gallop_private_source(${target} ${dir}/${id}.${isa}.cpp
                          "${GALLOP_KERNEL_FLAGS};${GALLOP_FLAGS_${isa}}")
    string(APPEND declare "extern const RuleKernels kernels_${id}_${isa};\n")
    string(APPEND pointers "&cpu::kernels_${id}_${isa}, ")
  endforeach()
  # Only where the library and this project both have CUDA.
  set(cuda nullptr)
  if(GALLOP_WITH_CUDA AND (CMAKE_CUDA_COMPILER OR GALLOP_EMULATED_CUDA))
    file(CONFIGURE OUTPUT ${dir}/${id}.cu CONTENT
"#include \"${path}\"
#define GALLOP_RULE ${struct}
#define GALLOP_RULE_ID ${id}
#include \"cuda/rule_kernels.cuh\"
")
    gallop_cuda_source(${target} ${dir}/${id}.cu)
    set(cuda "cuda::kernels_${id}()")
    set(declare_cuda "namespace cuda {\nconst RuleKernels* kernels_${id}();\n}\n")
  else()
    set(declare_cuda "")
  endif()
  set(announce "")
  set(text "")
  if(register)
    # For mode compiled; gallop's own rules are in its library.
    file(READ ${path} text)
    get_filename_component(folder ${path} DIRECTORY)
    set(text "  rule.text = jit::linked_in_text(\"${path}\", \"${folder}\", R\"~gallop~(${text})~gallop~\");\n")
    set(announce "namespace { const bool registered = (gallop::register_rule(gallop::make_rule_${id}()), true); }\n")
  endif()
  file(CONFIGURE OUTPUT ${dir}/${id}.rule.cpp CONTENT
"#include \"${path}\"
#include \"optimizer/describe_rule.h\"
#include \"optimizer/rule.h\"
namespace gallop {
namespace cpu {
${declare}}
${declare_cuda}static_assert(detail::same_text(rules::${struct}::name, \"${id}\"), \"a rule's name is its file's name\");
Rule make_rule_${id}();
Rule make_rule_${id}() {
  Rule rule(detail::describe<rules::${struct}>());
  rule.cpu = {${pointers}};
  rule.cuda = ${cuda};
${text}  return rule;
}
}
${announce}")
  gallop_private_source(${target} ${dir}/${id}.rule.cpp "-ffp-contract=off")
endfunction()

function(gallop_add_rule target)
  foreach(header IN LISTS ARGN)
    gallop_rule_sources(${target} ${header} TRUE)
  endforeach()
endfunction()

function(gallop_add_built_in_rules target)
  set(list "")
  foreach(header IN LISTS ARGN)
    gallop_rule_sources(${target} ${header} FALSE)
    get_filename_component(id ${header} NAME_WE)
    string(APPEND list " X(${id})")
  endforeach()
  file(CONFIGURE OUTPUT generated/rule_list.gen.h CONTENT
       "#pragma once\n#define GALLOP_FOREACH_RULE(X)${list}\n")
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
endfunction()

function(gallop_add_toolkits target)
  set(list "")
  set(with_flags "")
  foreach(isa IN LISTS GALLOP_ISAS)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/rules.gen/toolkit.${isa}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT
         "#define GALLOP_ISA ${isa}\n#include \"cpu/toolkit.inc\"\n")
    gallop_private_source(${target} ${source} "${GALLOP_KERNEL_FLAGS};${GALLOP_FLAGS_${isa}}")
    string(APPEND list " X(${isa})")
    string(REPLACE ";" " " flags "${GALLOP_KERNEL_FLAGS} ${GALLOP_FLAGS_${isa}}")
    string(APPEND with_flags " X(${isa}, \"${flags}\")")
  endforeach()
  file(CONFIGURE OUTPUT generated/isa_list.gen.h CONTENT
       "#pragma once\n#define GALLOP_FOREACH_ISA(X)${list}\n#define GALLOP_FOREACH_ISA_FLAGS(X)${with_flags}\n")
endfunction()

# The engine's loops: in fp32 for every instruction set, and in fp64.
function(gallop_add_gpt_kernels target)
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/gpt.gen)
  foreach(isa IN LISTS GALLOP_ISAS)
    file(CONFIGURE OUTPUT ${dir}/gpt.${isa}.cpp CONTENT
"#define GALLOP_REAL float
#define GALLOP_KERNELS kernels_gpt_${isa}
#include \"gpt/cpu/kernels.inc\"
")
    gallop_private_source(${target} ${dir}/gpt.${isa}.cpp
                          "${GALLOP_KERNEL_FLAGS};${GALLOP_FLAGS_${isa}}")
  endforeach()
  file(CONFIGURE OUTPUT ${dir}/gpt_double.cpp CONTENT
"#define GALLOP_REAL double
#define GALLOP_KERNELS kernels_gpt_double
#include \"gpt/cpu/kernels.inc\"
")
  gallop_private_source(${target} ${dir}/gpt_double.cpp "${GALLOP_KERNEL_FLAGS}")
endfunction()
