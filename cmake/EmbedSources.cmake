# cmake -DOUT=FILE -DHEADER=FILE -DNAMESPACE=NAME -DLISTS=ROOT|file|file... -P EmbedSources.cmake
#
# Writes a C++ file that holds files as texts, each under its path relative to the root before it.
set(code "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\nnamespace {\nconstexpr Source kSources[] = {\n")
string(REPLACE "|" ";" items "${LISTS}")
foreach(item IN LISTS items)
  if(IS_DIRECTORY ${item})
    set(root ${item})
    continue()
  endif()
  file(RELATIVE_PATH path ${root} ${item})
  file(READ ${item} text)
  string(APPEND code "{\"${path}\", R\"~gallop~(${text})~gallop~\"},\n")
endforeach()
string(APPEND code "};\n}\nstd::span<const Source> sources() { return kSources; }\n}\n")
file(WRITE ${OUT} "${code}")
