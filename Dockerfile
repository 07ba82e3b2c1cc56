# `make image` builds the static binary, lays it and an empty data folder into
# bin/image, and builds from there.
FROM scratch
LABEL org.opencontainers.image.title="rollcall" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY rollcall /rollcall
# The empty folder gives a new volume its owner.
COPY --chown=65532:65532 data/ /data/

USER 65532:65532
VOLUME /data
EXPOSE 8848 9848
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/rollcall", "healthcheck"]

ENTRYPOINT ["/rollcall"]
CMD ["server", "--bind", "0.0.0.0", "--data-dir", "/data"]
